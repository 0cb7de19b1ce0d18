"""What a staging did, counted by each thread on its own and added up afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass
class Counters:
    """Bytes, files, operations and seconds of one thread or one rank. Seconds are thread-seconds, not wall time."""

    files_read: int = 0
    files_landed: int = 0
    files_present: int = 0
    """Files that were there already, from an earlier run."""
    files_changed: int = 0
    """Entries that landed before and have changed in the source."""
    files_vanished: int = 0
    """Files that stay, though what they came from is gone from the source."""
    files_dropped: int = 0
    """Files that were removed because what they came from is gone."""
    bytes_read: int = 0
    """From the source."""
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_landed: int = 0
    """On the destination, after any transform."""
    sparse_source_bytes: int = 0
    """Disk space that files with holes take at the source, if they landed as they are."""
    sparse_landed_bytes: int = 0
    """Disk space that the same files take at the destination."""
    metadata_operations: int = 0
    """Calls to list, stat, open, close or rename a file, or to set its times."""
    retries: int = 0
    read_s: float = 0.0
    exchange_s: float = 0.0
    write_s: float = 0.0
    """Writing to the destination, with checksums and any transform."""
    sync_s: float = 0.0
    read_stalled_s: float = 0.0
    """Time that reading waited for room because a later step was slower."""
    exchange_stalled_s: float = 0.0
    """Time that sending waited for bytes to be read, or for received bytes to be taken."""
    write_stalled_s: float = 0.0
    """Time that writing waited for bytes."""

    def add(self, other: Counters) -> None:
        """Add the figures of ``other`` to these."""
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
