"""Readers with bugs on purpose: what the fuzzer must find and name. A family each; none is in the table."""

from __future__ import annotations

import itertools
import os
import random
import signal
from pathlib import Path

from staging.errors import DataError
from tests.staging.fuzz.allowed import refused
from tests.staging.fuzz.family import Family

TRIGGER = b"bad"


class Planted(Family):
    """Reads text; ``misbehave`` is called where it holds the letters of ``TRIGGER``."""

    tokens = (TRIGGER,)

    def make_seeds(self, dice: random.Random) -> list[bytes]:
        return [b"a sound file\n" * 3]

    def repair(self, data: bytes, dice: random.Random) -> bytes:
        """There is nothing to repair."""
        return data

    def read(self, data: bytes, folder: Path, dice: random.Random) -> None:
        """Refuses most files in one line."""
        if TRIGGER in data:
            self.misbehave(data, folder)
        with refused():
            raise DataError("a", "is not what is looked for")

    def misbehave(self, data: bytes, folder: Path) -> None:
        """The bug."""


class Sound(Planted):
    """No bug."""


class Crashes(Planted):
    """Ends by a signal."""

    def misbehave(self, data: bytes, folder: Path) -> None:
        """As a segmentation fault does."""
        os.kill(os.getpid(), signal.SIGSEGV)


class Hangs(Planted):
    """Takes the processor without end."""

    def misbehave(self, data: bytes, folder: Path) -> None:
        """Until it is ended. On one line, which is where each end of it is."""
        sum(itertools.repeat(0))


class Allocates(Planted):
    """Takes memory that the file does not say."""

    def misbehave(self, data: bytes, folder: Path) -> None:
        """More than goes with any file of some bytes."""
        assert bytearray(self.memory_bytes + self.memory_factor * len(data) + (32 << 20))


class RaisesKeyError(Planted):
    """Lets an error of Python out."""

    def misbehave(self, data: bytes, folder: Path) -> None:
        """A key that the file lacks."""
        raise KeyError("name")


class SpeaksInLines(Planted):
    """Refuses in two lines, one of them for the terminal and not for people."""

    def misbehave(self, data: bytes, folder: Path) -> None:
        """The message is not made by the class of the error, which would mend it."""
        error = DataError("a", "is bad")
        error.args = ("two\nlines\x1b[2J",)
        with refused():
            raise error


class Leaves(Planted):
    """Ends its process without a word."""

    def misbehave(self, data: bytes, folder: Path) -> None:
        """As ``sys.exit`` in a library does."""
        os._exit(3)
