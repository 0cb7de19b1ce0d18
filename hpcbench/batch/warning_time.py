"""Whether the warning before a job's time limit leaves time for a checkpoint, judged by earlier checkpoints."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcbench.batch.job_record import RECORD
from hpcbench.batch.packed_runs import packed_runs, run_path
from hpcbench.config.json_record import read_record
from hpcbench.results.attempts import Attempts
from staging.errors import DataError

SHARE = 0.5
"""Part of the warning time for a checkpoint; a step, the launcher's end and removing staged files need time, too."""


@dataclass(frozen=True)
class _Record:
    warn_s: int | None = None


def checkpoint_s(folder: Path) -> float | None:
    """The longest time that a checkpoint of the run took, from the step that it waits for to the disk, in seconds.

    ``None`` if none was written. Raises ``DataError`` for a damaged ``attempts.json``.
    """
    saves = [save for attempt in Attempts.read(folder).attempts for save in attempt.saves if save.get("write_s")]
    took = (max(save.get("stall_s", 0.0), save.get("copy_s", 0.0) + save["write_s"]) for save in saves)
    return max(took, default=None)


def longest_checkpoint(folder: Path) -> tuple[float | None, str]:
    """The longest time of a checkpoint of a job's run, or of the runs that the job packs, and the run in words.

    A packed run whose record is damaged is left out: it must not stop the others.
    """
    packed = packed_runs(folder)
    if packed is None:
        return checkpoint_s(folder), "this run"
    seconds_by_run: dict[str, float] = {}
    for name in packed.words:
        with suppress(DataError):
            took = checkpoint_s(run_path(folder, name))
            seconds_by_run |= {} if took is None else {name: took}
    slowest = max(seconds_by_run, key=seconds_by_run.__getitem__, default="")
    return seconds_by_run.get(slowest), f"run {slowest}"


def comparison(folder: Path, warn_s: int) -> tuple[str, bool]:
    """The time of a checkpoint and the warning time in words, and whether the latter is too short.

    Empty if no checkpoint was measured.
    """
    took, whose = longest_checkpoint(folder)
    if took is None:
        return "", False
    said = f"a checkpoint of {whose} took {took:.3g} s, and the warning comes {warn_s} s before the time limit"
    if took <= SHARE * warn_s:
        return said, False
    return f"{said}; give the next job --warn-s {math.ceil(took / SHARE)}", True


def too_short(folder: Path) -> list[str]:
    """A line if the warning time of the job in a folder is too short for its checkpoints; else none."""
    try:
        warn_s = read_record(_Record, folder / RECORD, "").warn_s
    except (DataError, FileNotFoundError):
        return []  # `read_job` reports a damaged record; a script submitted by hand has none
    if warn_s is None:
        return []
    said, is_too_short = comparison(folder, warn_s)
    return [said] if is_too_short else []
