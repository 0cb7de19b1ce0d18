"""What a rank is doing, which the loop reports, and for how long it has stood still, which a thread measures."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hpcbench.phase_names import LONG_PHASES, READING_PHASES

WARM_STEPS = 5
"""Steps from the start of the process that may take long, since kernels are compiled and chosen in them."""

LOOK_S = 1.0
"""Seconds between two looks at the progress of a rank."""

ALIVE_BYTES = 2**20
"""A rank that reads or writes this much between two looks in one of ``READING_PHASES`` has not stood still."""

ALIVE_CPU_S = 0.25
"""Nor has one that works alone and computes for this long between two looks."""

NAME_BYTES = 32
HEADER_BYTES = 4096


class Progress:
    """What the main thread of a rank is doing now.

    ``enter``, ``tick`` and ``touch`` take about 0.2 microseconds. They also write into memory that other processes of
    the node can read (``read_progress``), so that the phase in which a process was stopped is known exactly.
    """

    __slots__ = (
        "_handles", "_name", "_names", "_step", "alone", "changes", "descriptor", "phase", "step", "steps_done",
    )  # fmt: skip

    def __init__(self) -> None:
        self.phase = "init"
        self.step = 0
        self.steps_done = 0
        """Calls of ``tick``."""
        self.changes = 0
        """Increases with every sign of life."""
        self.alone = False
        """Whether this rank no longer waits for any rank or accelerator. Then CPU use is a sign of life; otherwise
        it may be a hanging communication that spins."""
        self.descriptor = os.memfd_create("hpcbench-progress")
        os.truncate(self.descriptor, HEADER_BYTES)
        # After the header comes what is written to the descriptor: stacks, on demand.
        os.lseek(self.descriptor, HEADER_BYTES, os.SEEK_SET)
        shared = memoryview(mmap.mmap(self.descriptor, HEADER_BYTES))
        self._step = shared[:8].cast("q")
        self._name = shared[8 : 8 + NAME_BYTES]
        self._names: dict[str, bytes] = {}
        self._handles: dict[str, _During] = {}
        self.enter("init")

    def __del__(self) -> None:
        os.close(self.descriptor)

    def enter(self, phase: str) -> str:
        """Record that the main thread now does ``phase``, such as "compute"; returns the phase before."""
        before, self.phase = self.phase, phase
        self.changes += 1
        try:
            self._name[:] = self._names[phase]
        except KeyError:
            self._name[:] = self._names[phase] = phase.encode()[:NAME_BYTES].ljust(NAME_BYTES, b"\0")
        return before

    def tick(self, step: int) -> None:
        """Record that optimizer step ``step`` is done."""
        self.step = self._step[0] = step
        self.steps_done += 1
        self.changes += 1

    def touch(self) -> None:
        """Record other progress: a batch of the evaluation, a file of the staging. May be called from any thread."""
        self.changes += 1

    def during(self, phase: str) -> _During:
        """A context manager that enters ``phase``, and at its end the phase before it. May be nested."""
        handle = self._handles.get(phase)
        if handle is None:
            handle = self._handles[phase] = _During(self, phase)
        return handle


class _During:
    """One phase of ``Progress.during``; holds the phases that it was entered from."""

    __slots__ = ("_before", "_phase", "_progress")

    def __init__(self, progress: Progress, phase: str) -> None:
        self._progress = progress
        self._phase = phase
        self._before: list[str] = []

    def __enter__(self) -> None:
        self._before.append(self._progress.enter(self._phase))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.enter(self._before.pop())


def read_progress(pid: int, descriptor: int) -> tuple[str, int] | None:
    """Phase and step of process ``pid`` of this node, which may be stopped; ``None`` if they cannot be read."""
    try:
        with open(f"/proc/{pid}/fd/{descriptor}", "rb") as file:  # noqa: PTH123 - a link to a file without a name
            header = file.read(8 + NAME_BYTES)
    except OSError:
        return None
    if len(header) < 8 + NAME_BYTES:
        return None
    return header[8:].rstrip(b"\0").decode(errors="replace"), int.from_bytes(header[:8], "little", signed=True)


@dataclass(frozen=True)
class Bounds:
    """How long a rank may stand still, in seconds that count only while its process runs."""

    hang_s: float = 60.0
    """The minimum; 0 switches the watch off."""
    steps: float = 20.0
    """And at least this many times the longest warm step."""
    long: float = 10.0
    """The factor on that bound in a long phase, and in the first steps."""

    def of(self, phase: str, warm: bool, longest_step_s: float) -> float:
        """The bound in ``phase`` of a rank whose longest warm step took ``longest_step_s``, in seconds."""
        usual = max(self.hang_s, self.steps * longest_step_s)
        return usual if warm and phase not in LONG_PHASES else usual * self.long


def bytes_moved() -> int:
    """Bytes that this process has read and written so far; 0 if the system does not report them."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


class StandstillClock:
    """How long a rank has stood still, measured at every ``look``.

    A look adds at most two intervals. So time does not count while the whole process is stopped (a suspended job, a
    sleeping laptop), and counts slowly if the machine is too busy to let the process look.
    """

    def __init__(
        self, progress: Progress, bounds: Bounds, clock: Callable[[], float] = time.monotonic,
        moved: Callable[[], int] = bytes_moved, computed: Callable[[], float] = time.process_time,
    ) -> None:  # fmt: skip
        self._progress = progress
        self._bounds = bounds
        self._clock = clock
        self._moved, self._bytes = moved, 0
        self._computed, self._cpu_s = computed, 0.0
        self._looked = clock()
        self.now = 0.0
        """Seconds that this process has run since the clock was created."""
        self._changed_at = 0.0
        self._changes = -1
        self._stepped_at: float | None = None
        self._steps = 0
        self.longest_step_s = 0.0

    def look(self) -> None:
        """Count the time since the last look."""
        now = self._clock()
        self.now += min(max(0.0, now - self._looked), 2 * LOOK_S)
        self._looked = now
        progress = self._progress
        if progress.phase in READING_PHASES:
            before, self._bytes = self._bytes, self._moved()
            if self._bytes - before >= ALIVE_BYTES:
                progress.touch()
        if progress.alone:
            cpu_s, self._cpu_s = self._cpu_s, self._computed()
            if self._cpu_s - cpu_s >= ALIVE_CPU_S:
                progress.touch()
        if progress.changes != self._changes:
            self._changes, self._changed_at = progress.changes, self.now
        if progress.phase in LONG_PHASES:
            self._stepped_at = None
            self._steps = progress.steps_done
        elif (done := progress.steps_done - self._steps) > 0:
            if self._stepped_at is not None and self._steps >= WARM_STEPS:
                self.longest_step_s = max(self.longest_step_s, (self.now - self._stepped_at) / done)
            self._steps, self._stepped_at = progress.steps_done, self.now

    @property
    def standing_s(self) -> float:
        """Seconds since the last sign of life that a look saw."""
        return self.now - self._changed_at

    @property
    def bound_s(self) -> float:
        """How long the rank may stand still in its phase."""
        warm = self._progress.steps_done >= WARM_STEPS
        return self._bounds.of(self._progress.phase, warm, self.longest_step_s)
