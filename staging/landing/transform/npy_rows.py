"""Transform ``npy-rows``: only some rows of the first dimension of an npy array land, as an npy array of these.

For samples that ranks share, if a node needs no more than its part of each. Only the header is held in memory.
"""

from __future__ import annotations

import fnmatch
import math

from staging.errors import DataError, InputError
from staging.formats.npy import npy_header, parse_header
from staging.landing.sinks import Landed, Sink, SinkMaker
from staging.landing.transform.options import Options, refuse_unknown
from staging.source.listing import UNKNOWN
from staging.storage.destination_folder import DestinationFolder

NAME = "npy-rows"
MOST_HEADER_BYTES = 1 << 16
AGAIN = "copy it again, or remove it from the set"


class NpyRows:
    """Rows ``first`` to before ``stop`` of arrays of ``of`` rows; files that do not match ``names`` stay whole."""

    suffixes = (".npy",)

    def __init__(self, first: int, stop: int, of: int, names: str = "*.npy") -> None:
        if not 0 <= first < stop <= of:
            raise InputError(f"transform '{NAME}' needs 0 <= first < stop <= of, not first={first},stop={stop},of={of}")
        self.first, self.stop, self.of = first, stop, of
        self.pattern = names

    @classmethod
    def from_options(cls, options: Options) -> NpyRows:
        """The transform with the options after its name."""
        refuse_unknown(NAME, options, ["first", "stop", "of", "names"])
        for key in ("first", "stop", "of"):
            if not options.get(key, "").isdecimal():
                raise InputError(
                    f"transform '{NAME}' option {key} ({options.get(key, 'unset')}) must be a whole number"
                )
        first, stop, of = (int(options[key]) for key in ("first", "stop", "of"))
        return cls(first, stop, of, options.get("names", "*.npy"))

    def names(self, name: str) -> list[str]:
        """``name`` itself."""
        return [name]

    def sinks(self, inner: SinkMaker) -> SinkMaker:
        """Sinks that leave rows out on the way to ``inner``."""
        return _RowsSinkMaker(self, inner)

    def takes(self, name: str) -> bool:
        """Whether rows of this file are left out."""
        return fnmatch.fnmatchcase(name, self.pattern)


class _RowsSinkMaker:
    def __init__(self, transform: NpyRows, inner: SinkMaker) -> None:
        self.transform, self.inner = transform, inner

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        if not self.transform.takes(name):
            return self.inner(destination, name, size, mtime_ns, source or name)
        return _RowsSink(self.transform, self.inner, destination, name, mtime_ns, source or name)

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        rows = self.transform
        kept_bytes = size * (rows.stop - rows.first) // rows.of + MOST_HEADER_BYTES if rows.takes(name) else size
        return self.inner.estimate(name, size if size == UNKNOWN else kept_bytes)


class _RowsSink:
    """Reads the header, then passes on the bytes of the rows that are kept; the others are counted."""

    def __init__(
        self, rows: NpyRows, inner: SinkMaker, destination: DestinationFolder, name: str, mtime_ns: int, source: str
    ) -> None:
        self._rows, self._inner, self._destination = rows, inner, destination
        self._name, self._mtime_ns, self._source = name, mtime_ns, source
        self._head = bytearray()
        self._sink: Sink | None = None
        self._start = self._stop = self._end = 0
        """Byte offsets in the data: where the kept rows start and stop, and where all rows end."""
        self._seen = 0

    def write(self, data: memoryview) -> None:
        """Pass on the bytes of the rows that are kept."""
        if self._sink is None:
            self._head += data
            data = self._open()
        if self._sink is not None:
            first, stop = max(self._start - self._seen, 0), max(self._stop - self._seen, 0)
            if kept := data[first:stop]:
                self._sink.write(kept)
            self._seen += len(data)

    def close(self) -> list[Landed]:
        """Give the rows the name of the array, if it was complete."""
        if self._sink is None:
            raise DataError(self._name, "is no npy file, or ends within its header", AGAIN)
        if self._seen != self._end:
            raise DataError(self._name, f"holds {self._seen} bytes of data where its header says {self._end}", AGAIN)
        return self._sink.close()

    def abandon(self) -> None:
        """Remove what is not finished."""
        if self._sink is not None:
            self._sink.abandon()

    def _open(self) -> memoryview:
        """Open the sink for the rows as soon as the header is there; returns the data after it."""
        parsed = parse_header(bytes(self._head[:MOST_HEADER_BYTES]), self._name)
        if parsed is None:
            if len(self._head) >= MOST_HEADER_BYTES:
                raise DataError(self._name, f"has a header of more than {MOST_HEADER_BYTES} bytes", AGAIN)
            return memoryview(b"")
        shape, fortran, dtype, length = parsed
        rows = self._rows
        if fortran and len(shape) > 1:
            raise DataError(self._name, "is in Fortran order", "write it again in C order")
        if not shape or shape[0] != rows.of:
            raise DataError(
                self._name, f"has shape {shape} where {rows.of} rows are expected", "set the data sizes to the file's"
            )
        row = math.prod(shape[1:]) * dtype.itemsize
        self._start, self._stop, self._end = rows.first * row, rows.stop * row, rows.of * row
        header = npy_header((rows.stop - rows.first, *shape[1:]), dtype)
        size = len(header) + self._stop - self._start
        self._sink = self._inner(self._destination, self._name, size, self._mtime_ns, self._source)
        self._sink.write(memoryview(header))
        behind, self._head = memoryview(self._head)[length:], bytearray()
        return behind
