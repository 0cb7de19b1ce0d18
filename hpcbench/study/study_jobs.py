"""The jobs of a study: which job makes which run, what they pack, and how they are cancelled.

A run of a scaling study is a separate job, in its run folder. A convergence study on a site packs several runs into
a job, whose folder is ``STUDY/jobs/NUMBER``. The newest job that lists a run makes it: a run is put into another job
only if no job that lists it may be alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcbench.batch.job_record import RECORD, JobHandle, read_job
from hpcbench.batch.packed_runs import packed_runs
from hpcbench.batch.submission import cancel
from hpcbench.exits import BAD_INPUT, DONE
from hpcbench.study.folder import StudyFolder
from hpcbench.study.progress import say
from hpcbench.study.run_status import RunStatus, run_statuses
from staging.errors import DataError, InputError


def study_statuses(
    folder: StudyFolder, names: Sequence[str], damaged_jobs: list[DataError] | None = None
) -> dict[str, RunStatus]:
    """The status of the runs of a study by name; each scheduler is queried once.

    Raises ``DataError`` for the damaged record of a packed job, since any run may be in that job. With ``damaged_jobs``
    the error is put there instead, for callers that submit nothing.
    """
    packed = packing_jobs(folder, damaged_jobs)
    damaged: dict[str, RunStatus] = {}
    jobs: dict[Path, JobHandle | None] = {}
    for name in names:
        path = folder.run(name)
        try:
            jobs[path] = read_job(path) if (path / RECORD).exists() else packed.get(name)
        except InputError as error:
            damaged[name] = RunStatus("failed", str(error))
    statuses = run_statuses(jobs)
    return {name: damaged.get(name) or statuses[folder.run(name)] for name in names}


def packing_jobs(folder: StudyFolder, damaged: list[DataError] | None = None) -> dict[str, JobHandle]:
    """The newest packed job of each run that is in one; see ``study_statuses`` for damaged records."""
    jobs_by_run: dict[str, JobHandle] = {}
    for path in job_folders(folder):
        try:
            packed = packed_runs(path, RECORD)
            if packed is not None:
                jobs_by_run |= dict.fromkeys(packed.words, read_job(path))
        except DataError as error:
            if damaged is None:
                raise
            damaged.append(error)
    return jobs_by_run


def job_folders(folder: StudyFolder) -> list[Path]:
    """The folders of packed jobs, oldest first, without those that were never submitted."""
    return [path for path in numbered(folder) if (path / RECORD).exists()]


def worked_in(folder: StudyFolder) -> list[Path]:
    """Every folder in which a job of the study may have worked: of runs, also those set aside, and of packed jobs."""
    runs = sorted(path for path in folder.runs.iterdir() if path.is_dir()) if folder.runs.is_dir() else []
    return [*runs, *job_folders(folder)]


def runs_of_later_jobs(folder: StudyFolder, job_folder: Path) -> set[str]:
    """The runs that a job with a higher number lists, which no longer belong to this job."""
    later = [path for path in job_folders(folder) if int(path.name) > int(job_folder.name)]
    return {name for path in later if (packed := packed_runs(path, RECORD)) is not None for name in packed.words}


def new_job_folder(folder: StudyFolder) -> Path:
    """The folder of the next packed job; the number of one that was never submitted is reused."""
    used = job_folders(folder)
    return folder.jobs / f"{int(used[-1].name) + 1 if used else 1:04d}"


def numbered(folder: StudyFolder) -> list[Path]:
    """Folders whose name is a number, in the order of the numbers."""
    paths = folder.jobs.iterdir() if folder.jobs.is_dir() else ()
    return sorted((path for path in paths if path.name.isdecimal()), key=lambda path: int(path.name))


def cancel_jobs(folder: StudyFolder, names: Sequence[str]) -> int:
    """Cancel every job of the study with these runs that waits or runs, and print that; returns the exit code.

    A job that cannot be cancelled, or whose record is damaged, is reported, and the others are cancelled.
    """
    damaged: list[DataError] = []
    jobs: dict[Path, tuple[JobHandle, str]] = {}
    for name, state in study_statuses(folder, names, damaged).items():
        if state.job is not None and (state.under_way or state.claimed):
            in_run_folder = state.job.folder == folder.run(name)
            jobs.setdefault(state.job.folder, (state.job, name if in_run_folder else f"jobs/{state.job.folder.name}"))
    for error in damaged:
        say(str(error))
    refused = len(damaged)
    for job, title in jobs.values():
        try:
            cancel(job)
        except InputError as error:
            refused += 1
            say(f"{title}: {error}")
        else:
            say(f"{title}: job {job.job_id} is being cancelled")
    if not jobs and not damaged:
        say(f"no job of {folder.path} waits or runs")
    return BAD_INPUT if refused else DONE
