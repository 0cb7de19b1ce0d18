"""What checkpoints cost: how long each held the loop, and the write and read bandwidth. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ASSUMED_BANDWIDTH = 100e6
"""Bytes per second that a disk is assumed to write if this run has measured none; low on purpose."""


@dataclass
class SaveTime:
    """The times of one checkpoint."""

    epoch: int
    step: int
    stall_s: float = 0.0
    """How long the loop was held: to wait for the checkpoint before, to copy, and to wait for this one."""
    copy_s: float = 0.0
    """The part of ``stall_s`` that copied the state into host memory."""
    write_bytes: int = 0
    """Bytes of the file; 0 on ranks that write none, and while the write is in progress."""
    write_s: float = 0.0
    """Time from gathering the first shard until the marker is on disk."""


@dataclass
class CheckpointTimes:
    """All checkpoints of a process: those written, and what was read to resume."""

    saves: list[SaveTime] = field(default_factory=list)
    read_bytes: int = 0
    read_s: float = 0.0
    """Time to read, verify and unpack."""
    earlier_write: float | None = None
    """Bytes per second of the slowest earlier attempt, if one has written any checkpoint."""

    def learn(self, earlier: Iterable[Mapping[str, float]]) -> None:
        """Take the bandwidth of earlier attempts of the run, each given as ``summary`` returns it."""
        wrote = [attempt for attempt in earlier if attempt.get("checkpoint_write_s")]
        rates = (attempt["checkpoint_write_bytes"] / attempt["checkpoint_write_s"] for attempt in wrote)
        self.earlier_write = min(rates, default=None)

    def add_read(self, size: int, seconds: float) -> None:
        """Add a checkpoint that was read."""
        self.read_bytes += size
        self.read_s += seconds

    @property
    def slowest_write(self) -> float | None:
        """Bytes per second of the slowest write so far; before the first one is complete, ``earlier_write``."""
        rates = (save.write_bytes / save.write_s for save in self.saves if save.write_bytes)
        return min(rates, default=self.earlier_write)

    def summary(self) -> dict[str, Any]:
        """Totals over the checkpoints written, in seconds and bytes, with the names of ``summary.json``."""
        written = [save for save in self.saves if save.write_bytes]
        return {
            "checkpoint_stall_s": sum(save.stall_s for save in written),
            "checkpoint_write_bytes": sum(save.write_bytes for save in written),
            "checkpoint_write_s": sum(save.write_s for save in written),
            "checkpoint_read_bytes": self.read_bytes,
            "checkpoint_read_s": self.read_s,
        }

    def words(self) -> str:
        """The same in one line; empty if nothing was written or read."""
        parts = []
        written = [save for save in self.saves if save.write_bytes]
        if written:
            size, seconds = sum(save.write_bytes for save in written), sum(save.write_s for save in written)
            stalls = [save.stall_s for save in self.saves]
            number = f"{len(written)} checkpoint{'s' if len(written) > 1 else ''}"
            held = f"held the training for {sum(stalls) / len(stalls):.3g} s each, at most {max(stalls):.3g} s"
            parts.append(f"{number}: {held}; written with {size / seconds / 1e6:.3g} MB/s")
        if self.read_bytes:
            parts.append(f"checkpoint read with {self.read_bytes / self.read_s / 1e6:.3g} MB/s")
        return "; ".join(parts)
