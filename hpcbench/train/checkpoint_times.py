"""What checkpoints cost: how long each held the loop, and the bandwidth of write and of read. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ASSUMED_BANDWIDTH = 100e6
"""Bytes per second that a disk is taken to write where this run has measured none; low on purpose."""


@dataclass
class SaveTime:
    """One checkpoint."""

    epoch: int
    step: int
    stall_s: float = 0.0
    """The loop was held: to wait for the one before, to copy, and to wait for this one."""
    copy_s: float = 0.0
    """Of that, to copy the state into host memory."""
    write_bytes: int = 0
    """Of the file; 0 on ranks that write none, and while it is under way."""
    write_s: float = 0.0
    """From the first shard gathered to the marker that the disk has."""


@dataclass
class CheckpointTimes:
    """All checkpoints of a process: written ones, and what was read to resume."""

    saves: list[SaveTime] = field(default_factory=list)
    read_bytes: int = 0
    read_s: float = 0.0
    """To read, verify and unpack."""
    earlier_write: float | None = None
    """Bytes per second of the slowest earlier attempt, where one has written any."""

    def learn(self, earlier: Iterable[Mapping[str, float]]) -> None:
        """Take the bandwidth of earlier attempts of the run, each given as by ``summary``."""
        wrote = [each for each in earlier if each.get("checkpoint_write_s")]
        rates = (each["checkpoint_write_bytes"] / each["checkpoint_write_s"] for each in wrote)
        self.earlier_write = min(rates, default=None)

    def add_read(self, size: int, seconds: float) -> None:
        """Add a checkpoint that was read."""
        self.read_bytes += size
        self.read_s += seconds

    @property
    def slowest_write(self) -> float | None:
        """Bytes per second of the slowest write so far; before the first is complete, ``earlier_write``."""
        rates = (each.write_bytes / each.write_s for each in self.saves if each.write_bytes)
        return min(rates, default=self.earlier_write)

    def summary(self) -> dict[str, Any]:
        """Totals by the names of ``summary.json``, in seconds and bytes, of checkpoints that are written."""
        written = [each for each in self.saves if each.write_bytes]
        return {
            "checkpoint_stall_s": sum(each.stall_s for each in written),
            "checkpoint_write_bytes": sum(each.write_bytes for each in written),
            "checkpoint_write_s": sum(each.write_s for each in written),
            "checkpoint_read_bytes": self.read_bytes,
            "checkpoint_read_s": self.read_s,
        }

    def words(self) -> str:
        """The same in a line; empty where nothing was written or read."""
        parts = []
        written = [each for each in self.saves if each.write_bytes]
        if written:
            size, seconds = sum(each.write_bytes for each in written), sum(each.write_s for each in written)
            stalls = [each.stall_s for each in self.saves]
            number = f"{len(written)} checkpoint{'s' if len(written) > 1 else ''}"
            held = f"held the training for {sum(stalls) / len(stalls):.3g} s each, at most {max(stalls):.3g} s"
            parts.append(f"{number}: {held}; written with {size / seconds / 1e6:.3g} MB/s")
        if self.read_bytes:
            parts.append(f"checkpoint read with {self.read_bytes / self.read_s / 1e6:.3g} MB/s")
        return "; ".join(parts)
