"""What a staging did, counted by each thread on its own and added up afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass
class Counters:
    """Bytes, files, operations and seconds of one thread or one rank. Seconds are of threads, not of the clock."""

    files_read: int = 0
    files_landed: int = 0
    files_present: int = 0
    """Files that were there already, from an earlier run."""
    files_changed: int = 0
    """Of what landed before, entries that the source has changed."""
    files_vanished: int = 0
    """Files that stay, though the source has no more what they came from."""
    files_dropped: int = 0
    """Files that were removed for that."""
    bytes_read: int = 0
    """From the source."""
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_landed: int = 0
    """On the destination, after any transform."""
    sparse_source_bytes: int = 0
    """On the disk of the source: what files with holes take that landed as they are."""
    sparse_landed_bytes: int = 0
    """On the disk of the destination: what the same files take there."""
    metadata_operations: int = 0
    """Calls to list, look at, open, close, rename or time-stamp a file."""
    retries: int = 0
    read_s: float = 0.0
    exchange_s: float = 0.0
    write_s: float = 0.0
    """Writing to the destination, with checksums and any transform."""
    sync_s: float = 0.0
    read_stalled_s: float = 0.0
    """Reading waited for room: something behind it was slower."""
    exchange_stalled_s: float = 0.0
    """Sending waited for bytes to be read, or received ones to be taken."""
    write_stalled_s: float = 0.0
    """Writing waited for bytes to come."""

    def add(self, other: Counters) -> None:
        """Add another's figures to this one's."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds inside to the figure ``name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            setattr(self, name, getattr(self, name) + time.perf_counter() - start)
