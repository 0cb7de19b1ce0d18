"""Transforms that need the whole content of a file: they hold it in memory, convert it, and write it as files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from staging.errors import DataError
from staging.landing.file_sink import refuse_outside
from staging.landing.sinks import Landed, Sink, SinkMaker
from staging.landing.transform.options import LEAVE
from staging.storage.destination_folder import DestinationFolder

HELD_BYTES = 1 << 30
"""The largest file that is held in memory, in each stream."""

Output = tuple[str, Sequence[Any]]
"""A file name and its content in pieces, each an object with the buffer protocol."""


class WholeTransform(ABC):
    """A transform of whole files. A subclass says what comes out; ``sinks`` does the rest."""

    suffixes: tuple[str, ...] = ()
    """The endings of the file names that it is for; empty if it does not say."""

    @abstractmethod
    def names(self, name: str) -> list[str]:
        """The files that ``name`` becomes."""

    @abstractmethod
    def output_bytes(self, name: str, size: int) -> int:
        """Bytes of all outputs of ``name``, or a careful estimate."""

    @abstractmethod
    def convert(self, name: str, data: memoryview) -> list[Output]:
        """The outputs for the content ``data``; they may be views of it. Raises ``DataError`` if it does not fit."""

    def sinks(self, inner: SinkMaker) -> SinkMaker:
        """A maker of sinks that hold, convert, and write to sinks of ``inner``."""
        return WholeSinkMaker(self, inner)


class WholeSinkMaker:
    """Opens a sink that converts each entry by ``transform``."""

    def __init__(self, transform: WholeTransform, inner: SinkMaker) -> None:
        self.transform = transform
        self.inner = inner

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        """A sink that holds ``size`` bytes. Raises ``DataError`` if these are too many."""
        if size > HELD_BYTES:
            raise _too_large(name, size)
        return WholeSink(self, destination, name, size, mtime_ns, source or name)

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        """What ``inner`` makes of the outputs.

        How the bytes are divided is not known. One output with all bytes but one for each other takes the most blocks.
        """
        first, *others = self.transform.names(name) or [name]
        files = self.inner.estimate(first, self.transform.output_bytes(name, size))
        return files + [file for other in others for file in self.inner.estimate(other, 1)]


class WholeSink:
    """Converts as soon as the last byte arrives, without a copy if all arrive at once; ``close`` renames."""

    def __init__(
        self, maker: WholeSinkMaker, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str
    ) -> None:
        self._maker, self._destination = maker, destination
        self._name, self._size, self._mtime_ns, self._source = name, size, mtime_ns, source
        self._held = bytearray()
        self._converted = False
        self._sinks: list[Sink] = []

    def write(self, data: memoryview) -> None:
        """Hold ``data``, and convert when everything is there."""
        if not self._held and len(data) == self._size:
            self._convert(data)
            return
        if len(self._held) + len(data) > HELD_BYTES:
            raise _too_large(self._name, len(self._held) + len(data))
        self._held += data
        if len(self._held) == self._size:
            self._convert(memoryview(self._held))

    def close(self) -> list[Landed]:
        """Give the outputs their names."""
        if not self._converted:
            self._convert(memoryview(self._held))
        return [landed for sink in self._sinks for landed in sink.close()]

    def abandon(self) -> None:
        """Remove outputs that are not finished."""
        self._held = bytearray()
        for sink in self._sinks:
            sink.abandon()

    def _convert(self, data: memoryview) -> None:
        self._converted = True
        taken: set[str] = set()
        for name, parts in self._maker.transform.convert(self._name, data):
            refuse_outside(name, self._name)
            if name in taken:
                raise DataError(self._name, f"becomes two files named '{name}'", "mend the transform")
            taken.add(name)
            views = [byte_view(part) for part in parts]
            size = sum(len(view) for view in views)
            sink = self._maker.inner(self._destination, name, size, self._mtime_ns, self._source)
            self._sinks.append(sink)
            for view in views:
                sink.write(view)
        self._held = bytearray()


def byte_view(part: Any) -> memoryview:
    """The bytes of a buffer with any items, in the order of their indices: a view if they are contiguous, else a copy.

    Raises ``TypeError`` for what is no buffer, and for one of objects.
    """
    view = memoryview(part)
    if not view.nbytes:
        return memoryview(b"")
    array = np.ascontiguousarray(view)
    if array.dtype.hasobject:
        raise TypeError(f"an array of {array.dtype} has no bytes of its own")
    return array.reshape(-1).view(np.uint8).data


def _too_large(name: str, size: int) -> DataError:
    problem = f"has {size} bytes or more, and this transform holds at most {HELD_BYTES} in memory"
    return DataError(name, problem, f"split it, {LEAVE}")
