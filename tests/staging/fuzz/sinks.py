"""Where transforms write to while files are fuzzed: memory, which is let go of at once, or a folder."""

from __future__ import annotations

import random
from pathlib import Path

from staging.landing.sinks import Landed, Sink, SinkMaker
from staging.landing.transforms import find_transform, sink_maker
from staging.source.listing import UNKNOWN
from staging.storage.destination_folder import DestinationFolder
from tests.staging.fuzz.allowed import expect, refused


class Counting:
    """A sink that counts what comes, and holds it to the size that was said."""

    def __init__(self, name: str, size: int) -> None:
        self._name, self._size, self._seen = name, size, 0

    def write(self, data: memoryview) -> None:
        """Count."""
        self._seen += len(data)
        expect(self._size == UNKNOWN or self._seen <= self._size, "more bytes came than were said")

    def close(self) -> list[Landed]:
        """All has come."""
        expect(self._size in (UNKNOWN, self._seen), "other bytes came than were said")
        return [Landed(self._name, self._seen, UNKNOWN, self._name, 0)]

    def abandon(self) -> None:
        """Nothing is there."""


class CountingMaker:
    """Makes such sinks."""

    def __call__(self, destination: DestinationFolder, name: str, size: int, mtime_ns: int, source: str = "") -> Sink:
        """One of them."""
        return Counting(name, size)

    def estimate(self, name: str, size: int) -> list[tuple[str, int]]:
        """The size."""
        return [(name, size)]


def transform(data: bytes, name: str, called: str, folder: Path, dice: random.Random, *, lands: bool = False) -> None:
    """Put the entry ``name`` through a transform, in one piece or in several; ``lands``: into files of ``folder``.

    What landed must lie there as is said, and what was refused must leave nothing.
    """
    destination = folder / f"to-{called.partition(':')[0]}"
    destination.mkdir()
    maker: SinkMaker = sink_maker(called) if lands else find_transform(called).sinks(CountingMaker())
    landed: list[Landed] = []
    with DestinationFolder(destination) as open_folder, refused():
        sink = maker(open_folder, name, len(data), 10**18)
        try:
            for piece in pieces(data, dice):
                sink.write(piece)
            landed = sink.close()
        except BaseException:
            sink.abandon()
            raise
    if lands:
        files = sorted(path for path in destination.rglob("*") if not path.is_dir())
        expect(files == sorted(destination / file.name for file in landed), "other files lie there than landed")
        expect(all((destination / file.name).stat().st_size == file.size for file in landed), "other sizes landed")


def pieces(data: bytes, dice: random.Random) -> list[memoryview]:
    """``data`` in one piece, or cut at some places."""
    places = sorted(dice.randrange(len(data) + 1) for _ in range(dice.choice((0, 0, 1, 3, 9))))
    starts = [0, *places]
    return [memoryview(data)[start:stop] for start, stop in zip(starts, [*places, len(data)], strict=True)]
