"""Where the bytes come from: files of a folder, and what else can be read as entries of a listing."""

from __future__ import annotations

from typing import Protocol

from staging.listing import Listing


class Reader(Protocol):
    """Reads entries one after another, each from its start to its end. Used by one thread."""

    def read_into(self, entry: int, offset: int, buffer: memoryview) -> None:
        """Fill ``buffer`` with the bytes of ``entry`` from ``offset`` on.

        Raises ``DataError`` where the entry is missing, unreadable, or shorter than its listing says.
        """

    def finish(self, entry: int) -> None:
        """All bytes of ``entry`` are read: raise ``DataError`` where it is not what the listing says any more."""

    def close(self) -> None:
        """Let go of what is open."""


class Source(Protocol):
    """A listing and the bytes behind it."""

    listing: Listing

    def reader(self) -> Reader:
        """A reader for one thread."""
