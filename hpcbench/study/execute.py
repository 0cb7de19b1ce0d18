"""What a job of packed runs executes: it makes the runs side by side, each in its own slot."""

from __future__ import annotations

import os
import signal
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.batch.packed_runs import PackedRuns, packed_runs
from hpcbench.exits import ABORTED, BAD_INPUT, DONE
from hpcbench.measure.job_check import Asked, check_alone
from hpcbench.results.run_folder import CRASH
from hpcbench.study.folder import StudyFolder, take
from hpcbench.study.local_runs import GRACE_S, LocalLauncher, LocalRuns
from hpcbench.study.progress import say
from hpcbench.study.run_slots import Devices, Slot, equal_slots, find_devices, physical_cores
from hpcbench.study.run_status import RunStatus, Statuses, record_crash
from hpcbench.study.runner import FAILURES_IN_A_ROW, StudyRunner
from hpcbench.study.signal_counter import SignalCounter
from hpcbench.study.study_jobs import runs_of_later_jobs
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError
from staging.ranks.signals import warning_time
from staging.units import counted


def execute(job_folder: Path, local_path: str | None = None, asked: Asked | None = None) -> int:
    """Make the runs that are left of the job in this folder; returns 1 if one of them failed or did not end.

    They stage to ``local_path`` on their nodes, if it is given. If ``asked`` is given, this process first checks that
    the job got that (``hpcbench.measure.job_check``), and writes nothing before.

    Raises ``Aborted`` (128+n) for signal n, after all runs have stopped, and ``InputError`` if the runs cannot be made
    or nothing but failures result; then ``crash.json`` in the folder says so, and no further attempt follows.
    """
    packed = packed_runs(job_folder)
    if packed is None:
        raise InputError(f"{job_folder} holds no job of packed runs; give a folder STUDY/jobs/NUMBER")
    if asked is not None:
        check_alone(replace(asked, local=local_path or ""), os.environ, lambda: len(find_devices().ids))
    folder = StudyFolder(job_folder.absolute().parents[1])
    lock = os.open(job_folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        take(lock, job_folder)
        (job_folder / CRASH).unlink(missing_ok=True)
        try:
            others = runs_of_later_jobs(folder, job_folder.absolute())
            return make_runs(folder, packed_to(packed, local_path), others, lock)
        except InputError as error:
            record_crash(job_folder, BAD_INPUT, str(error))
            raise
    finally:
        os.close(lock)


def packed_to(packed: PackedRuns, local_path: str | None) -> PackedRuns:
    """The runs, with the node-local folder to which they stage."""
    if local_path is None:
        return packed
    return replace(packed, further_words=(*packed.further_words, f"--staging.destination={local_path}"))


def make_runs(folder: StudyFolder, packed: PackedRuns, others: Container[str], lock: int) -> int:
    """Make the runs that have not ended, as many at once as there are slots.

    Runs in ``others`` are left alone. They belong to another job: this one had been given up, and started late.
    """
    slots = slots_of(packed)
    runs = [StudyRun(name, words) for name, words in packed.words.items() if name not in others]
    folder.logs.mkdir(exist_ok=True)
    grace_s = max(GRACE_S, warning_time())
    executor = LocalRuns(folder, LocalLauncher(lock), slots, grace_s, packed.further_words)

    def due(statuses: Statuses) -> Sequence[StudyRun]:
        return [run for run in runs if not statuses[run.name].final]

    def finished(name: str, state: RunStatus, seconds: float | None) -> None:
        say(f"hpcbench: {name}: {state.status}{f' ({state.reason})' if state.reason else ''}")

    most = None if packed.launchers else FAILURES_IN_A_ROW  # a failing node does not end the runs on others
    runner = StudyRunner(
        folder, executor, due, len(slots), keep=packed.keep, finished=finished, most_failures=most
    )  # fmt: skip
    statuses = runner.run({run.name: folder.status(run.name) for run in runs}, SignalCounter(signal.SIGUSR1))
    return DONE if all(state.final and state.status != "failed" for state in statuses.values()) else ABORTED


def slots_of(packed: PackedRuns) -> list[Slot]:
    """A slot for each concurrent run of the job. Raises ``InputError`` if the job sees too few accelerators."""
    if packed.launchers:
        return [Slot(packed.cores, launcher=words) for words in packed.launchers]
    devices = find_devices() if packed.gpus else Devices()
    needed = packed.side_by_side * packed.gpus
    if len(devices.ids) < needed:
        raise InputError(
            f"the job sees {counted(len(devices.ids), 'accelerator')} instead of {needed} "
            f"({counted(packed.side_by_side, 'run')} x {packed.gpus}); see what its log says about the node"
        )
    return equal_slots(packed.side_by_side, packed.processes, physical_cores(), devices, packed.gpus)
