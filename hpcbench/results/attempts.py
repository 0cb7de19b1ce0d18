"""The attempts of a run: each process that worked on it, from its start to its end, and what all of them took."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from hpcbench.results.run_folder import write_atomic
from hpcbench.results.summary import finite
from staging.bounds import shown
from staging.errors import DataError
from staging.formats.regular import read_text

FILE = "attempts.json"
SCHEMA = 1

TIMES = ("started", "ended", "wall_s")
"""Fields of an attempt that enter the sums over all attempts."""

Row = dict[str, Any]
"""What one rank measured, as in ``ranks.csv``."""

DESCRIBES = ("rank", "node", "local_rank", "threads", "gemm_dtype", "gemm_flops", "all_reduce_s", "device_note")
"""Columns of ``ranks.csv`` that are no sums."""


@dataclass
class Attempt:
    """One process's part of a run, as rank 0 measured it; times in seconds, ``started`` and ``ended`` since 1970."""

    started: float
    ended: float
    """Where the process ended, or had come when it last wrote this down."""
    first_step: int
    last_step: int
    cause: str | None = None
    """Why it ended; unset of a process that was killed, or is at work."""
    world_size: int = 0
    """Ranks that worked on it; 0 in files of earlier versions."""
    wall_s: float = 0.0
    phases_s: dict[str, float] = field(default_factory=dict)
    """Exclusive phases, which add up to ``wall_s``."""
    energy_j: float | None = None
    energy_source: str = ""
    energy_note: str = ""
    peak_memory_bytes: int = 0
    checkpoint: dict[str, float] = field(default_factory=dict)
    """What its checkpoints took: seconds and bytes by the names of ``summary.json``."""
    saves: list[dict[str, float]] = field(default_factory=list)
    """Each checkpoint: ``epoch``, ``step``, ``stall_s``, ``copy_s``, ``write_bytes`` (0: it was lost), ``write_s``."""


@dataclass
class Attempts:
    """All attempts of a run so far, in order, and the rows of its ranks summed over them."""

    attempts: list[Attempt] = field(default_factory=list)
    ranks: list[Row] = field(default_factory=list)

    @property
    def wall_s(self) -> float:
        """Seconds of all attempts, the gaps between them left out."""
        return sum(each.wall_s for each in self.attempts)

    @property
    def gaps_s(self) -> float:
        """Seconds between the attempts, and of what was lost when a process was killed."""
        if not self.attempts:
            return 0.0
        return max(0.0, self.attempts[-1].ended - self.attempts[0].started - self.wall_s)

    @property
    def phases_s(self) -> dict[str, float]:
        """Seconds of each phase over all attempts."""
        return _added([each.phases_s for each in self.attempts])

    @property
    def checkpoint(self) -> dict[str, float]:
        """What checkpoints took over all attempts."""
        return _added([each.checkpoint for each in self.attempts])

    @property
    def written(self) -> list[dict[str, float]]:
        """The checkpoints of all attempts that are written; the process may have ended before another was."""
        return [save for each in self.attempts for save in each.saves if save["write_bytes"]]

    @property
    def longest_stall_s(self) -> float:
        """The longest that one checkpoint held the training."""
        return max((save["stall_s"] for save in self.written), default=0.0)

    @property
    def peak_memory_bytes(self) -> int:
        """Largest of all attempts."""
        return max((each.peak_memory_bytes for each in self.attempts), default=0)

    @property
    def energy(self) -> tuple[float | None, str, str]:
        """Joules, their source and what they cover; no joules where one attempt has none."""
        known = [each.energy_j for each in self.attempts if each.energy_j is not None]
        if not known or len(known) < len(self.attempts):
            unknown = next((each for each in self.attempts if each.energy_j is None), None)
            return None, "", unknown.energy_note if unknown is not None else ""
        notes = ", ".join(dict.fromkeys(each.energy_note for each in self.attempts))
        if len(known) > 1:
            killed = sum(each.cause is None for each in self.attempts[:-1])
            notes += f", over {len(known)} attempts"
            notes += f" without what {killed} lost after the last checkpoint" if killed else ""
        return sum(known), ", ".join(dict.fromkeys(each.energy_source for each in self.attempts)), notes

    def write(self, folder: Path) -> None:
        """Write ``attempts.json``."""
        values = {"schema": SCHEMA, "attempts": [asdict(each) for each in self.attempts], "ranks": self.ranks}
        write_atomic(folder / FILE, json.dumps(finite(values), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Attempts:
        """What earlier attempts left; none where there is no file.

        Raises ``DataError`` for a damaged one, also where a number is not finite, since sums would not be.
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
            known = {each.name for each in fields(Attempt)}
            attempts = [Attempt(**{k: v for k, v in each.items() if k in known}) for each in values["attempts"]]
            for name, value in ((name, getattr(each, name)) for each in attempts for name in TIMES):
                if not isinstance(value, int | float):
                    raise ValueError(f"{name} {shown(value)} is not a number")
            return cls(attempts, [dict(row) for row in values["ranks"]])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problem = f"is damaged ({' '.join(str(error).split())[:80]})"
            raise DataError(path, problem, "remove it to resume without the figures of earlier attempts") from error


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
    """Rows of all ranks over attempts: sums of what is a sum; of other ranks than these, the new rows alone.

    What is unset in both stays unset; energy that one of them lacks is unknown.
    """
    if [row["rank"] for row in earlier] != [row["rank"] for row in rows]:
        return [dict(row) for row in rows]
    return [{key: _sum(key, old, new) for key in new} for old, new in zip(earlier, rows, strict=True)]


def _sum(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
    if key in DESCRIBES:
        return new[key]
    before, now = old.get(key), new[key]
    if before is None or now is None:
        measured = old.get("steps") and new.get("steps")
        return None if measured else (now if before is None else before)
    return before + now
