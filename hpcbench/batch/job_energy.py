"""Energy of a whole job from the scheduler's accounting, for nodes whose counters a run could not read itself."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from hpcbench.batch.submission import JobHandle, ask
from hpcbench.results.run_folder import write_atomic
from staging.errors import DataError
from staging.formats.regular import read_text

FILE = "job-energy.json"
STEP = re.compile(r"[\d_+]+\.\d+")
LARGEST_J = 1e15
"""Above it Slurm means that there is no value."""


def job_energy_j(job: JobHandle) -> float | None:
    """Joules of a job that has ended: what Slurm's accounting has, of all its steps; kept in the run folder.

    Unset where there is no accounting, or none of energy.
    """
    kept = job.folder / FILE
    if kept.exists():
        return read_kept(kept)
    if job.scheduler != "slurm" or shutil.which("sacct") is None:
        return None
    done = ask(["sacct", "--noheader", "--parsable2", f"--jobs={job.job_id}", "--format=JobID,ConsumedEnergyRaw"],
               job.folder)  # fmt: skip
    joules = parse_energy(done.printed) if done.exit_code == 0 else None
    if joules is not None:
        write_atomic(kept, json.dumps({"joules": joules, "source": "sacct ConsumedEnergyRaw"}) + "\n")
    return joules


def read_kept(path: Path) -> float | None:
    """What an earlier question found."""
    try:
        return float(json.loads(read_text(path))["joules"])
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return None


def parse_energy(printed: str) -> float | None:
    """The sum over the numbered steps, which are what ran under ``srun``, of lines such as ``123.0|4567``."""
    joules = []
    for line in printed.splitlines():
        name, _, value = line.partition("|")
        if STEP.fullmatch(name.strip()) and value.strip().isdigit():
            joules.append(float(value))
    known = [value for value in joules if 0 < value < LARGEST_J]
    return sum(known) if known else None
