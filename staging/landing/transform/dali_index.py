"""Transform ``tfrecord-index``: a TFRecord passes through, and the index that DALI's reader needs lands beside it.

The index of ``a.tfrecord`` is ``a.tfrecord.idx``: a line ``offset size`` for each record, both in bytes and including
the framing, as DALI's ``tfrecord2idx`` writes it. Both CRC32C values of every record are verified on the way.
"""

from __future__ import annotations

from staging.checksums import crc32c
from staging.errors import DataError
from staging.formats.compression import MAGIC
from staging.formats.tfrecord import AGAIN, FOOTER, HEADER, MASK_DELTA, masked_crc32c
from staging.landing.sinks import Landed, Sink, SinkMaker
from staging.landing.transform.options import Options, refuse_unknown
from staging.storage.destination_folder import DestinationFolder

SUFFIX = ".idx"
LINE_BYTES = 24  # typical size of a record's line in an index
LEAST_RECORD = 4096  # bytes, for the estimate of an index


class RecordScanner:
    """Finds the records of a TFRecord that arrives in pieces, without holding any."""

    def __init__(self, name: str) -> None:
        self.records: list[tuple[int, int]] = []
        """Offset and size of each complete record, framing included."""
        self._name = name
        self._offset = 0  # of the current record
        self._frame = bytearray()
        self._payload: int | None = None  # bytes of the current payload still to come; None: in the header
        self._length = 0
        self._crc = 0

    def feed(self, data: memoryview) -> None:
        """Take the next bytes. Raises ``DataError`` with number and offset of a damaged record."""
        while len(data):
            if self._payload:
                part = data[: self._payload]
                self._crc = crc32c(part, self._crc)
                self._payload -= len(part)
            else:
                part = data[: (HEADER if self._payload is None else FOOTER).size - len(self._frame)]
                self._frame += part
                self._frame_grew()
            data = data[len(part) :]

    def finish(self) -> list[tuple[int, int]]:
        """All bytes have arrived: return the records. Raises ``DataError`` for a file that is cut short or empty."""
        if self._frame or self._payload is not None:
            raise DataError(self._name, f"{self._where()} is cut short", AGAIN)
        if not self.records:
            raise DataError(self._name, "is empty", AGAIN)
        return self.records

    def _frame_grew(self) -> None:
        if self._payload is None and len(self._frame) == HEADER.size:
            self._length, stored = HEADER.unpack(self._frame)
            if masked_crc32c(self._frame[:8]) != stored:
                raise self._no_header()
            self._payload, self._crc = self._length, 0
            self._frame.clear()
        elif self._payload is not None and len(self._frame) == FOOTER.size:
            if _masked(self._crc) != FOOTER.unpack(self._frame)[0]:
                problem = f"{self._where()} is damaged: the CRC32C of its {self._length} bytes does not match"
                raise DataError(self._name, problem, AGAIN)
            size = HEADER.size + self._length + FOOTER.size
            self.records.append((self._offset, size))
            self._offset += size
            self._payload = None
            self._frame.clear()

    def _no_header(self) -> DataError:
        if not self._offset and self._frame[:2] == MAGIC:
            return DataError(self._name, "is gzip, and an index needs plain records", "use gunzip+tfrecord-index")
        problem = f"{self._where()} has a length whose CRC32C does not match (damaged, or not a TFRecord)"
        return DataError(self._name, problem, AGAIN)

    def _where(self) -> str:
        return f"record {len(self.records)} at byte {self._offset}"


def scan_records(name: str, data: memoryview) -> list[tuple[int, int]]:
    """Offset and size of each record of a TFRecord in memory; ``DataError`` naming ``name`` if one is damaged."""
    scanner = RecordScanner(name)
    scanner.feed(data)
    return scanner.finish()


def index_text(records: list[tuple[int, int]]) -> bytes:
    """The content of DALI's index file for ``records``."""
    return "".join(f"{offset} {size}\n" for offset, size in records).encode()


class TFRecordIndex:
    """The transform; it has no options."""

    suffixes = (".tfrecord", ".tfrecords")

    @classmethod
    def from_options(cls, options: Options) -> TFRecordIndex:
        """The transform, which takes no options after its name."""
        refuse_unknown("tfrecord-index", options)
        return cls()

    def names(self, name: str) -> list[str]:
        """The TFRecord and its index."""
        return [name, name + SUFFIX]

    def sinks(self, inner: SinkMaker) -> SinkMaker:
        """Sinks that pass data on to ``inner`` and write the index to it."""
        return _IndexSinkMaker(inner)


class _IndexSinkMaker:
    def __init__(self, inner: SinkMaker) -> None:
        self._inner = inner

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        return _IndexSink(self._inner, destination, name, size, mtime_ns, source or name)

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        index = LINE_BYTES * (1 + size // LEAST_RECORD)
        return self._inner.estimate(name, size) + self._inner.estimate(name + SUFFIX, index)


class _IndexSink:
    def __init__(
        self, inner: SinkMaker, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str
    ) -> None:
        self._inner, self._destination, self._name = inner, destination, name
        self._mtime_ns, self._source = mtime_ns, source
        self._scanner = RecordScanner(name)
        self._sinks = [inner(destination, name, size, mtime_ns, source)]

    def write(self, data: memoryview) -> None:
        self._scanner.feed(data)
        self._sinks[0].write(data)

    def close(self) -> list[Landed]:
        text = index_text(self._scanner.finish())
        index = self._inner(self._destination, self._name + SUFFIX, len(text), self._mtime_ns, self._source)
        self._sinks.append(index)
        index.write(memoryview(text))
        return [landed for sink in self._sinks for landed in sink.close()]

    def abandon(self) -> None:
        for sink in self._sinks:
            sink.abandon()


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF
