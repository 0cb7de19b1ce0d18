"""Runs of a study that this process starts and watches, each in its own slot: here, or on nodes of its job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hpcbench.batch.failure_reason import failure_reason
from hpcbench.exits import BAD_INPUT
from hpcbench.parallel.spawn import FOREIGN
from hpcbench.results.checkpoint_files import is_refusal
from hpcbench.study.folder import StudyFolder
from hpcbench.study.job_runs import set_aside
from hpcbench.study.run_slots import Slot
from hpcbench.study.run_status import RunStatus, Status, Statuses, record_crash
from hpcbench.study.signal_counter import SignalCounter
from hpcbench.study.study_run import StudyRun

POLL_S = 0.1
GRACE_S = 120.0
"""How long a run may take to finish an optimizer step and write its checkpoint."""
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                  "MASTER_ADDR", "MASTER_PORT", "HPCBENCH_SPAWNED")  # fmt: skip
STOPPED = (128 + signal.SIGTERM, 128 + signal.SIGUSR1)
"""Exit codes of a process that was stopped before it could write why."""


class Process(Protocol):
    """A run under way."""

    def poll(self) -> int | None:
        """The exit code (128+n for a signal n), or ``None`` while the run continues."""

    def stop(self, number: signal.Signals) -> None:
        """Send a signal to end the run: with a checkpoint, or with SIGKILL at once, together with all its processes."""


class Launcher(Protocol):
    """Starts runs."""

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> Process:
        """Start ``hpcbench ARGUMENTS`` in ``slot``; its output is appended to ``log``."""


class LocalProcess:
    """A run as a child of this process, in its own process group: Ctrl-C at a terminal does not reach it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def stop(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)
            elif self.poll() is None:
                os.kill(self._process.pid, number)


class LocalLauncher:
    """Starts runs on this machine. They inherit the open file ``lock``, and so hold the study's folder even if this
    process is killed."""

    def __init__(self, lock: int | None = None) -> None:
        self._inherited = () if lock is None else (lock,)

    def start(self, arguments: Sequence[str], log: Path, slot: Slot) -> Process:
        """See ``Launcher``."""
        command = [*slot.launcher, sys.executable, "-m", "hpcbench", *arguments]
        with log.open("ab") as output, slot.held():
            return LocalProcess(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    env=own_environment(os.environ, slot), process_group=0, pass_fds=self._inherited,
                )
            )  # fmt: skip


def own_environment(environ: Mapping[str, str], slot: Slot) -> dict[str, str]:
    """The environment without what a launcher set about ranks for this process: a run of the study is its own job."""
    if slot.launcher:
        return dict(environ)
    variables = {name: value for name, value in environ.items() if not name.startswith(FOREIGN)}
    variables = {name: value for name, value in variables.items() if name not in RANK_VARIABLES}
    threads = {"OMP_NUM_THREADS": str(slot.threads)} if "OMP_NUM_THREADS" in variables else {}
    return variables | threads | dict(slot.environment)


@dataclass
class Running:
    """A run under way."""

    run: StudyRun
    process: Process
    slot: Slot
    resumed: bool
    before: int | None
    """When the summary of an earlier attempt was written, in ns; ``None`` if there is none."""
    printed: int
    """Bytes that earlier attempts had printed to the log."""


@dataclass
class LocalRuns:
    """The executor (``hpcbench.study.runner``) of runs here: one process each, one for each of ``slots`` at once."""

    folder: StudyFolder
    launcher: Launcher
    slots: Sequence[Slot]
    grace_s: float = GRACE_S
    further_words: tuple[str, ...] = ()
    """Arguments that every run gets, whether it begins or continues."""
    running: dict[str, Running] = field(default_factory=dict)
    free: list[Slot] = field(init=False)
    pauses_s: tuple[float, float] = (POLL_S, POLL_S)
    retried: tuple[Status, ...] = ("failed",)

    def __post_init__(self) -> None:
        """Make all slots free: no run has one yet."""
        self.free = list(self.slots)

    def pack(self, due: Sequence[StudyRun]) -> list[tuple[StudyRun, ...]]:
        """Each run alone."""
        return [(run,) for run in due]

    def unit(self, name: str, state: RunStatus) -> str:
        """The run itself."""
        return name

    def forgive(self, name: str) -> RunStatus:
        """Forget that the run failed; it continues from its last checkpoint."""
        self.folder.forgive(name)
        return self.folder.status(name)

    def start(self, part: Sequence[StudyRun]) -> dict[str, RunStatus]:
        """Start a run, from its last checkpoint if it has one."""
        (run,) = part
        resume = self.folder.resumable(run.name)
        if not resume:
            self.folder.clear(run.name)
        self.launch(run, self.free.pop(0), resume)
        return {run.name: RunStatus("running")}

    def launch(self, run: StudyRun, slot: Slot, resume: bool) -> None:
        """Start the process of a run."""
        run_dir = self.folder.run(run.name)
        arguments = run.resuming(run_dir) if resume else run.arguments(run_dir, slot.threads)
        log = self.folder.log(run.name)
        before, printed = self.summary_time(run.name), log.stat().st_size if log.exists() else 0
        process = self.launcher.start([*arguments, *self.further_words], log, slot)
        self.running[run.name] = Running(run, process, slot, resume, before, printed)

    def look(self, under_way: Statuses) -> dict[str, RunStatus]:
        """The runs whose processes have ended, and how."""
        ended = [name for name, running in self.running.items() if running.process.poll() is not None]
        statuses = {name: self.conclude(name) for name in ended}
        return {name: state for name, state in statuses.items() if state is not None}

    def conclude(self, name: str) -> RunStatus | None:
        """The status of a run whose process has ended; ``None`` if it has been started anew."""
        ended = self.running.pop(name)
        code = ended.process.poll()
        assert code is not None
        has_summary = self.summary_time(name) not in (None, ended.before)
        said = said_reason(self.folder.log(name), ended.printed)
        if ended.resumed and code == BAD_INPUT and not has_summary and is_refusal(said):
            # Its checkpoint cannot be used, for example because it is from another number of threads.
            set_aside(self.folder.run(name), "refused")
            self.launch(ended.run, ended.slot, resume=False)
            return None
        self.free.append(ended.slot)
        state = self.folder.status(name)
        if state.final or code in STOPPED or has_summary:
            return state
        record_crash(self.folder.run(name), code, crash_reason(code, self.folder.log(name), ended.printed))
        return self.folder.status(name)

    def summary_time(self, name: str) -> int | None:
        """When the summary of a run was written, in ns; ``None`` if there is none."""
        try:
            return (self.folder.run(name) / "summary.json").stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def stop(self, under_way: Statuses, signals: SignalCounter) -> None:
        """Ask the runs under way to stop; a second signal, or too long a wait, kills them."""
        asked, killed = time.monotonic(), False
        asks = signals.first if signals.first in (signal.SIGTERM, signal.SIGUSR1) else signal.SIGTERM
        for running in self.running.values():
            running.process.stop(asks)
        while any(running.process.poll() is None for running in self.running.values()):
            late = time.monotonic() - asked > self.grace_s
            if not killed and (late or signals.count > 1):
                killed = True
                for running in self.running.values():
                    running.process.stop(signal.SIGKILL)
            time.sleep(POLL_S)
        self.running.clear()

    def log(self, name: str) -> Path:
        """What the run printed."""
        return self.folder.log(name)


def crash_reason(code: int, log: Path, printed: int = 0) -> str:
    """Why a run that left no summary ended: how, and what its log says about it after ``printed`` bytes."""
    how = f"killed by signal {code - 128}" if code > 128 else f"exit code {code}"
    said = said_reason(log, printed)
    return f"{how}: {said}" if said else how


def said_reason(log: Path, printed: int = 0) -> str:
    """What the log says after ``printed`` bytes about why a run ended; may be empty."""
    try:
        return failure_reason(log.read_bytes()[printed:].decode(errors="replace").splitlines())
    except OSError:
        return ""
