"""Transform ``gunzip``: libdeflate for whole files, zlib in pieces for large ones; each member's CRC-32 is checked."""

from __future__ import annotations

from contextlib import suppress

from staging.errors import DataError
from staging.formats.compression import MAGIC, TooLargeError, gunzip
from staging.landing.sinks import Sink, SinkMaker
from staging.landing.transform.options import LEAVE, Options, positive, refuse_unknown
from staging.landing.transform.streaming import DecompressSink
from staging.landing.transform.whole import Output, WholeSink, WholeSinkMaker, WholeTransform
from staging.source.listing import UNKNOWN
from staging.storage.destination_folder import DestinationFolder

WHOLE_BYTES = 64 << 20
"""Compressed size above which a file is decompressed in pieces, by zlib."""
PLAIN_BYTES = 1 << 30
"""The same limit for the size that the file's trailer states."""
EXPANSION = 6
"""The estimated bytes out per byte in: published CosmoFlow samples, 16.8 MB each, expand 5.8 times."""


class Gunzip(WholeTransform):
    """Decompresses, and drops ``.gz`` from the name. Option ``expansion``: bytes out per byte in, for the space."""

    suffixes = (".gz", ".tfrecord", ".tfrecords")

    def __init__(self, expansion: int = EXPANSION) -> None:
        self.expansion = expansion

    @classmethod
    def from_options(cls, options: Options) -> Gunzip:
        """The transform with the options after its name."""
        refuse_unknown("gunzip", options, ["expansion"])
        return cls(positive("gunzip", options, "expansion", EXPANSION))

    def names(self, name: str) -> list[str]:
        """``name`` without ``.gz``."""
        return [without_gz(name)]

    def output_bytes(self, name: str, size: int) -> int:
        """``expansion`` times the size."""
        return size * self.expansion

    def convert(self, name: str, data: memoryview) -> list[Output]:
        """The decompressed content. Raises ``DataError`` unless ``data`` is sound gzip to its end.

        Content of more than ``PLAIN_BYTES`` raises ``TooLargeError``, whatever the trailer says.
        """
        refuse_plain(name, data)
        return [(without_gz(name), [gunzip(data, name, PLAIN_BYTES)])]

    def sinks(self, inner: SinkMaker) -> SinkMaker:
        """Sinks that decompress into ``inner``."""
        return _GunzipSinkMaker(self, inner)


def without_gz(name: str) -> str:
    """``name`` without the suffix ``.gz``."""
    return name[:-3] if name.endswith(".gz") and not name.endswith("/.gz") and name != ".gz" else name


def refuse_plain(name: str, data: memoryview) -> None:
    """Raise ``DataError`` if ``data`` does not start like gzip."""
    if data[:2] != MAGIC:
        raise DataError(name, "is not gzip", LEAVE)


class _GunzipSinkMaker(WholeSinkMaker):
    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        if 0 <= size <= WHOLE_BYTES:
            return _GunzipSink(self, destination, name, size, mtime_ns, source or name)
        return self.in_pieces(destination, name, mtime_ns, source or name)

    def in_pieces(self, destination: DestinationFolder, name: str, mtime_ns: int, source: str) -> Sink:
        return DecompressSink("gzip", name, self.inner(destination, without_gz(name), UNKNOWN, mtime_ns, source))


class _GunzipSink(WholeSink):
    """Switches to pieces if the trailer says that the content is too large for memory."""

    _maker: _GunzipSinkMaker

    def _convert(self, data: memoryview) -> None:
        if int.from_bytes(data[-4:], "little") <= PLAIN_BYTES:
            # With several members, the trailer gives the size of the last one only.
            with suppress(TooLargeError):
                super()._convert(data)
                return
        refuse_plain(self._name, data)
        self._converted = True
        sink = self._maker.in_pieces(self._destination, self._name, self._mtime_ns, self._source)
        self._sinks.append(sink)
        sink.write(data)
