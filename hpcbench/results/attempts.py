"""The attempts of a run: each process that worked on it, from its start to its end, and what all of them took."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.config.read_dataclass import check_type, from_json
from hpcbench.results.run_folder import write_atomic
from hpcbench.results.summary import finite
from hpcbench.results.units import counted
from staging.errors import DataError, InputError
from staging.formats.regular import read_text

FILE = "attempts.json"
SCHEMA = 1
TO_CHECKPOINT = "up to the last checkpoint"
"""How the note of a run's energy ends that lacks what its only attempt took afterwards."""
AFTER_CHECKPOINT = "took after the last checkpoint"
"""How it ends where some of several attempts have that missing."""

Row = dict[str, Any]
"""What one rank measured, as in ``ranks.csv``."""

DESCRIBES = ("rank", "local_rank", "threads", "gemm_dtype", "all_reduce_s", "device_note")
"""Columns of ``ranks.csv`` that are not sums; the last attempt's value counts."""
NO_NUMBERS = ("node", "gemm_dtype", "device_note")


@dataclass
class Attempt:
    """One process's part of a run, as rank 0 measured it; times in seconds, ``started`` and ``ended`` since 1970."""

    started: float
    ended: float
    """When the process ended, or when it last wrote this record."""
    first_step: int
    last_step: int
    cause: str | None = None
    """Why it ended; unset for a process that was killed, or that is still running."""
    world_size: int = 0
    """Ranks that worked on it; 0 in files of earlier versions, -1 for ``lost_attempts``."""
    wall_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    """Exclusive phases, which add up to ``wall_s``."""
    energy_j: float | None = None
    energy_source: str = ""
    energy_note: str = ""
    energy_to_end: bool | None = None
    """Whether the energy is counted to the end, not only to the last checkpoint; unset in files of earlier versions."""
    peak_memory_bytes: int = 0
    checkpoint: dict[str, float] = field(default_factory=dict)
    """What its checkpoints took: seconds and bytes, under the names of ``summary.json``."""
    saves: list[dict[str, float]] = field(default_factory=list)
    """Each checkpoint: ``epoch``, ``step``, ``stall_s``, ``copy_s``, ``write_bytes`` (0: it was lost), ``write_s``."""
    evaluations: int = 0
    """Evaluations whose seconds are in ``phases_s``, even if their steps were lost; 0 in files of earlier versions."""


@dataclass
class Attempts:
    """All attempts of a run so far, in order, and the rows of its ranks summed over them."""

    attempts: list[Attempt] = field(default_factory=list)
    ranks: list[Row] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        """Seconds of all attempts, the gaps between them left out."""
        return sum(attempt.wall_s for attempt in self.attempts)

    @property
    def gaps_s(self) -> float:
        """Seconds between the attempts, including what was lost when a process was killed."""
        if not self.attempts:
            return 0.0
        return max(0.0, self.attempts[-1].ended - self.attempts[0].started - self.wall_s)

    @property
    def phases_s(self) -> dict[str, float]:
        """Seconds of each phase over all attempts."""
        return _added([attempt.phases_s for attempt in self.attempts])

    @property
    def evaluations(self) -> int:
        """Evaluations of all attempts, including those whose steps were lost."""
        return sum(attempt.evaluations for attempt in self.attempts)

    @property
    def checkpoint(self) -> dict[str, float]:
        """What checkpoints took over all attempts."""
        return _added([attempt.checkpoint for attempt in self.attempts])

    @property
    def written(self) -> list[dict[str, float]]:
        """The checkpoints of all attempts that were written; a process may have ended before it wrote another."""
        return [save for attempt in self.attempts for save in attempt.saves if save["write_bytes"]]

    @property
    def longest_stall_s(self) -> float:
        """The longest time that one checkpoint held the training."""
        return max((save["stall_s"] for save in self.written), default=0.0)

    @property
    def peak_memory_bytes(self) -> int:
        """Largest of all attempts."""
        return max((attempt.peak_memory_bytes for attempt in self.attempts), default=0)

    @property
    def energy(self) -> tuple[float | None, str, str]:
        """Joules, their source and what they cover; no joules where an attempt has none."""
        known = [attempt.energy_j for attempt in self.attempts if attempt.energy_j is not None]
        if not known or len(known) < len(self.attempts):
            unknown = next((attempt for attempt in self.attempts if attempt.energy_j is None), None)
            return None, "", unknown.energy_note if unknown is not None else ""
        notes = ", ".join(dict.fromkeys(attempt.energy_note for attempt in self.attempts))
        cut = sum(_ends_early(attempt) for attempt in self.attempts[:-1])
        last = self.attempts[-1]  # without a cause it is still running
        cut += last.cause is not None and _ends_early(last)
        if len(known) > 1:
            notes += f", over {len(known)} attempts"
            notes += f" without what {cut} {AFTER_CHECKPOINT}" if cut else ""
        elif cut:
            notes += f", {TO_CHECKPOINT}"
        return sum(known), ", ".join(dict.fromkeys(attempt.energy_source for attempt in self.attempts)), notes

    def rows_before(self, world_size: int) -> list[Row]:
        """The rows that those of a new attempt with ``world_size`` ranks are added to: of the attempts right before it.

        An attempt with another number of ranks that ended before its figures were gathered leaves the rows of those
        before it. These are not added to, as if it had left its own. A ``world_size`` of 0 is of an earlier version.
        """
        apart = self.attempts and self.attempts[-1].world_size not in (world_size, 0)
        return [] if apart and len(self.ranks) == world_size else self.ranks

    def write(self, folder: Path) -> None:
        """Write ``attempts.json``."""
        values = {"schema": SCHEMA, "attempts": [asdict(attempt) for attempt in self.attempts], "ranks": self.ranks}
        write_atomic(folder / FILE, json.dumps(finite(values), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Attempts:
        """What earlier attempts left; none where there is no file.

        Raises ``DataError`` for a damaged file, also where a number is not finite, since sums would not be.
        """
        path = folder / FILE
        try:
            text = read_text(path)
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise DataError(path, f"cannot be read ({error.strerror})", "remove it to resume without") from error
        try:
            values = json.loads(text, parse_float=_finite_number, parse_constant=_finite_number)
            if values["schema"] != SCHEMA:
                raise ValueError(f"schema {values['schema']}")
            return cls([_attempt(attempt) for attempt in values["attempts"]], [_row(row) for row in values["ranks"]])
        except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"is damaged ({' '.join(str(error).split())[:80]})"
            raise DataError(path, problem, "remove it to resume without the figures of earlier attempts") from error


def lost_attempts(started: float, step: int) -> Attempts:
    """What stands for the attempts up to ``step`` of a run that began at ``started`` and has no record of them."""
    note = f"not measured: {FILE} has nothing of the first {counted(step, 'step')}"
    return Attempts([Attempt(started, started, 0, step, world_size=-1, energy_note=note)])


def _attempt(values: Mapping[str, Any]) -> Attempt:
    """An attempt as a file has it; keys of later versions are left out. Raises ``InputError`` or ``ValueError``."""
    attempt = from_json(Attempt, values, "", ignore_unknown=True)
    if not all({"step", "stall_s", "write_bytes"} <= {*save} for save in attempt.saves):
        raise ValueError("saves lack step, stall_s or write_bytes")
    return attempt


def _row(values: Mapping[str, Any]) -> Row:
    """What a rank measured, as a file has it. Raises ``InputError``, ``ValueError``, ``TypeError`` or ``KeyError``."""
    row = dict(values)
    check_type(row["rank"], int, "rank")
    for name, value in row.items():
        if name not in NO_NUMBERS and value is not None:
            check_type(value, float, f"{name} of rank {row['rank']}")
    return row


def is_cut(energy_note: str) -> bool:
    """Whether the energy of a run with this note lacks what came after a checkpoint, up to the end of an attempt."""
    return energy_note.endswith((TO_CHECKPOINT, AFTER_CHECKPOINT))


def _ends_early(attempt: Attempt) -> bool:
    """Whether the energy of an attempt that has ended covers only the time to its last checkpoint."""
    return attempt.cause is None if attempt.energy_to_end is None else not attempt.energy_to_end


def _finite_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _added(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    return total


def summed(earlier: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows of all ranks over attempts, with columns that are sums added up; where the ranks differ, the new rows alone.

    What is unset in both stays unset; energy that one of them lacks is unknown. A rank that continued on another node
    gets the names of all its nodes, since its sums are not the last node's alone. Its rate of matrix products is the
    mean of the nodes' measured rates, weighted by the seconds of their steps.
    """
    if [row["rank"] for row in earlier] != [row["rank"] for row in rows]:
        return [dict(row) for row in rows]
    return [{key: _sum(key, old, new) for key in new} for old, new in zip(earlier, rows, strict=True)]


def _sum(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    if key in DESCRIBES:
        return new[key]
    if key == "node":
        return ", ".join(dict.fromkeys([*str(old.get(key, new[key])).split(", "), str(new[key])]))
    if key == "gemm_flops":
        return _mean_rate(old, new)
    before, now = old.get(key), new[key]
    if before is None or now is None:
        measured = old.get("steps") and new.get("steps")
        return None if measured else (now if before is None else before)
    return before + now


def _mean_rate(old: Mapping[str, Any], new: Mapping[str, Any]) -> float | None:
    """FLOP/s of matrix products over both rows, so that seconds times rate is what the nodes could have computed.

    Unset where a row with steps has no rate, or where the rates are of different number types.
    """
    taken = [row for row in (old, new) if row.get("steps") and row.get("wall_s")] or [new]
    rates: list[Any] = [row.get("gemm_flops") for row in taken]
    if None in rates or len({row.get("gemm_dtype") for row in taken}) > 1:
        return None
    if len(taken) == 1:
        return float(rates[0])
    seconds = [float(row["wall_s"]) for row in taken]
    return float(sum(rate * duration for rate, duration in zip(rates, seconds, strict=True)) / sum(seconds))
