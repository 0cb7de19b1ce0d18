"""Energy of a whole job from the scheduler's accounting, for nodes whose counters a run could not read itself.

Slurm's ``sacct`` prints a record for each attempt of a job (it was requeued in between), and under it its steps. Each
has ``ConsumedEnergyRaw`` in joules, for all that its nodes drew while it lasted:

- a numbered step is one ``srun``; these follow one another in a job script, so their energies add up;
- ``extern`` lasts from the start of the attempt to its end on all of its nodes, if the site has it
  (``PrologFlags=Contain``); recent versions of Slurm give its energy as that of the attempt. That is the whole;
- ``batch`` lasts as long, on the first node only. It overlaps with both, and is never added. If a site has no
  ``extern``, the energy of the attempt is the sum of all steps including ``batch``. It counts the first node twice, and
  is not taken;
- 0, nothing, and numbers such as 18446744073709551614 mean that there is no value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from hpcbench.batch.holds import read_holds
from hpcbench.batch.job_record import RECORD, JobHandle
from hpcbench.batch.scheduler import UnreachableError
from hpcbench.batch.submission import MOST_IDS, ask
from hpcbench.results.run_folder import write_atomic
from staging.errors import DataError
from staging.formats.regular import read_text

FILE = "job-energy.json"
COLUMNS = "JobID,State,ElapsedRaw,ConsumedEnergyRaw"
NUMBERED = re.compile(r"\d+")
BASE = re.compile(r"\d*")
"""The number of a job, without the component of a heterogeneous job, the task of an array, and the step."""
LARGEST_J = 1e15
NO_VALUES = (4294967294.0, 4294967295.0)
"""Slurm's 32-bit numbers for no value and for infinity; the 64-bit ones are above ``LARGEST_J``."""
UNDER_WAY = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "RESIZING", "STOPPED", "STAGE_OUT")
BY_STEPS = "Slurm's accounting (sacct): the steps of whole jobs, start and end included"
BY_JOB = "Slurm's accounting (sacct): whole jobs, start and end included"

_Step = tuple[str, str, float, float | None]
"""Name, state, seconds and joules."""


@dataclass(frozen=True)
class JobEnergy:
    """Energy of a job in joules; ``None`` if it is not known."""

    joules: float | None
    words: str
    """What the joules cover, or why there are none."""


@dataclass
class _Attempt:
    """A record of the accounting: one attempt of a job, or of a component of a heterogeneous one."""

    name: str
    state: str
    elapsed_s: float
    joules: float | None
    steps: list[_Step] = field(default_factory=list)


def job_energy(job: JobHandle) -> JobEnergy:
    """Energy of a job that has ended, from Slurm's accounting. A known value is kept in the run folder."""
    return job_energies([job])[0]


def job_energies(jobs: Sequence[JobHandle]) -> list[JobEnergy]:
    """The energy of each job, with one query for every 500 jobs; see ``job_energy``."""
    energy_by_folder: dict[Path, JobEnergy] = {}
    asked = []
    for job in jobs:
        path = job.folder / FILE
        if path.exists():
            energy_by_folder[job.folder] = read_kept(path)
        elif job.scheduler != "slurm":
            energy_by_folder[job.folder] = JobEnergy(
                None, f"{job.scheduler} has no accounting of energy that is read here"
            )
        else:
            asked.append(job)
    for start in range(0, len(asked), MOST_IDS):
        energy_by_folder |= _accounted(asked[start : start + MOST_IDS])
    return [energy_by_folder[job.folder] for job in jobs]


def _accounted(jobs: Sequence[JobHandle]) -> dict[Path, JobEnergy]:
    """What ``sacct`` says about jobs of Slurm; known values are kept."""
    ids_by_folder = {job.folder: all_ids(job) for job in jobs}
    ids = ",".join(dict.fromkeys(job_id for own in ids_by_folder.values() for job_id in own))
    command = ["sacct", "--noheader", "--parsable2", "--duplicates", f"--jobs={ids}", f"--format={COLUMNS}"]
    try:
        reply = ask([*command, *_since([job.folder for job in jobs])], jobs[0].folder)
    except UnreachableError as error:
        return dict.fromkeys((job.folder for job in jobs), JobEnergy(None, str(error).replace("'", "")))
    if reply.exit_code != 0:
        failed = JobEnergy(None, f"sacct failed with exit code {reply.exit_code}")
        return dict.fromkeys((job.folder for job in jobs), failed)
    lines: dict[str, list[str]] = {}
    for line in reply.printed.splitlines():
        lines.setdefault(BASE.match(line.strip())[0], []).append(line)  # type: ignore[index]
    energy_by_folder = {folder: _energy_of_jobs(own, lines) for folder, own in ids_by_folder.items()}
    for folder, energy in energy_by_folder.items():
        if energy.joules is not None:
            keep(energy, folder)
    return energy_by_folder


def all_ids(job: JobHandle) -> list[str]:
    """The job and those whose run it continued, as after its script was submitted by hand, in order."""
    before = [hold.job_id for hold in read_holds(job.folder) if hold.nodes and hold.scheduler == job.scheduler]
    return list(dict.fromkeys([*before, job.job_id]))


def _energy_of_jobs(job_ids: Sequence[str], lines: Mapping[str, Sequence[str]]) -> JobEnergy:
    """The energy of the jobs of one run; known only if ``sacct`` knows all of them."""
    gone = [job_id for job_id in job_ids if job_id not in lines]
    if gone and len(job_ids) > 1:
        return JobEnergy(None, f"sacct has no record of job {gone[0]}, which made a part of the run")
    return parse_energy("\n".join(line for job_id in job_ids for line in lines.get(job_id, ())))


def keep(energy: JobEnergy, folder: Path) -> None:
    """Write what was found, or why nothing was, into a run folder."""
    write_atomic(folder / FILE, json.dumps({"joules": energy.joules, "source": "sacct", "words": energy.words}) + "\n")


def read_kept(path: Path) -> JobEnergy:
    """What an earlier query found."""
    try:
        values = json.loads(read_text(path))
        joules = values["joules"]
        return JobEnergy(None if joules is None else float(joules), str(values.get("words", BY_STEPS)))
    except (DataError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return JobEnergy(None, f"{path.name} of the run is damaged; remove it to ask sacct again")


def parse_energy(printed: str) -> JobEnergy:
    """The energy of all attempts, from lines of ``COLUMNS`` such as ``123.0|COMPLETED|60|4567``.

    It is known only if that of every attempt is known.
    """
    attempts = _attempts(printed)
    if not attempts:
        return JobEnergy(None, "sacct has no record of the job")
    energies = [_energy_of(attempt) for attempt in attempts]
    unknown = next((energy for energy in energies if energy.joules is None), None)
    if unknown is not None:
        return unknown
    ran = [energy for energy in energies if energy.joules]
    if not ran:
        return JobEnergy(None, "sacct has no attempt of the job that ran")
    words = BY_JOB if all(energy.words == BY_JOB for energy in ran) else BY_STEPS
    more = f", over {len(ran)} records of it" if len(ran) > 1 else ""
    return JobEnergy(sum(energy.joules or 0.0 for energy in ran), words + more)


def _energy_of(attempt: _Attempt) -> JobEnergy:
    """The attempt's own energy if that is the whole, else the sum of its numbered steps."""
    if attempt.state in UNDER_WAY:
        return JobEnergy(None, f"job {attempt.name} is {attempt.state} by sacct")
    if not attempt.elapsed_s and not attempt.steps:
        return JobEnergy(0.0, "")  # it was requeued before it began
    numbered = [step for step in attempt.steps if NUMBERED.fullmatch(step[0])]
    known = sum(joules for *_, joules in numbered if joules is not None)
    extern = [joules for name, state, _, joules in attempt.steps if name == "extern" and state not in UNDER_WAY]
    whole = next((value for value in (attempt.joules, *extern) if extern and value is not None), 0.0)
    if whole and whole >= known:
        return JobEnergy(whole, BY_JOB)
    why = _incomplete(attempt.name, numbered)
    return JobEnergy(None, why) if why else JobEnergy(known, BY_STEPS)


def _incomplete(job: str, numbered: Sequence[_Step]) -> str:
    """Why the energies of the numbered steps do not add up to that of the job; empty if they do."""
    for name, state, elapsed_s, joules in numbered:
        if state in UNDER_WAY:
            return f"step {job}.{name} is {state} by sacct, so that the sum over steps is incomplete"
        if joules is None and elapsed_s:
            return f"sacct has no energy of step {job}.{name}, so that the sum over steps is incomplete"
    if not any(joules for *_, joules in numbered):
        return f"sacct has no step of job {job} with a value, so that its energy is not known"
    return ""


def _attempts(printed: str) -> list[_Attempt]:
    """The records in the order printed, each with the steps that follow it."""
    attempts: list[_Attempt] = []
    for line in printed.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < len(COLUMNS.split(",")):
            continue
        job, dot, step = cells[0].partition(".")
        state = (cells[1].split() or [""])[0]  # CANCELLED by 1234
        elapsed_s = float(cells[2]) if cells[2].isdecimal() else math.nan
        joules = _joules(cells[3])
        if not dot:
            attempts.append(_Attempt(job, state, elapsed_s, joules))
        elif attempts and attempts[-1].name == job:
            attempts[-1].steps.append((step, state, elapsed_s, joules))
        else:
            attempts.append(_Attempt(job, "", math.nan, None, [(step, state, elapsed_s, joules)]))
    return attempts


def _joules(text: str) -> float | None:
    """A number of joules, which older versions print with decimals; ``None`` if it means that there is no value."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < LARGEST_J and value not in NO_VALUES else None


def _since(folders: Sequence[Path]) -> list[str]:
    """The option that excludes older jobs with reused numbers; it starts a day early, because of time zones."""
    try:
        first = min(datetime.fromisoformat(json.loads(read_text(path / RECORD))["submitted"]) for path in folders)
    except (DataError, OSError, ValueError, KeyError, TypeError):
        return []
    return [f"--starttime={(first - timedelta(days=1)).date().isoformat()}"]
