"""Times of warm steps: exact sums on a clock that the tests move, and real processor time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.measure.phases import Phases
from hpcbench.measure.step_times import StepTimes, processor_s
from hpcbench.phase_names import STEP_PHASES
from staging.phase_timer import PhaseTimer

STEP_S = {"input_wait": 0.125, "compute": 1.0, "communication": 0.25, "waiting": 2.0, "optimizer": 0.5}
OTHER_S = 0.0625
"""Seconds of a step that no phase has; all of these are sums of powers of two, and so are added without rounding."""
WALL_S = sum(STEP_S.values()) + OTHER_S


class Machine:
    """A rank with a clock, processor time, an energy counter, and a device that may be behind."""

    def __init__(self, warmup_steps: int, look_s: float = 0.0) -> None:
        self.now = self.cpu_s = self.queued_s = 0.0
        self.joules: float | None = 0.0
        self.look_s = look_s
        self.phases = Machine.Queue(self)
        self.times = StepTimes(
            self.phases, warmup_steps, joules=lambda: self.joules, clock=lambda: self.now, processor=self.look
        )

    class Queue(Phases):
        """Phases of a device, for which ``settle`` waits as long as it is behind."""

        def __init__(self, machine: Machine) -> None:
            super().__init__(PhaseTimer(clock=lambda: machine.now), torch.device("cpu"))
            self.machine = machine

        def settle(self) -> None:
            with self.timer.span("compute"):
                self.machine.now += self.machine.queued_s
            self.machine.queued_s = 0.0

    def look(self) -> float:
        """Processor time, which takes a while to find out."""
        self.now += self.look_s
        return self.cpu_s

    def work(self, seconds: float, phase: str = "") -> None:
        """Time passes, in a phase or in none; two threads are busy, and draw 100 W."""
        with self.phases.phase(phase or "anything"):
            self.now += seconds
        self.cpu_s += 2 * seconds
        self.joules = None if self.joules is None else self.joules + 100 * seconds

    def step(self, samples: int = 8) -> None:
        for name, seconds in STEP_S.items():
            self.work(seconds, name)
        self.work(OTHER_S)
        self.times.step(samples)

    def part(self, steps: int) -> None:
        """Steps up to an evaluation, and this, which has a phase of its own and computes, too."""
        self.times.begin()
        for _ in range(steps):
            self.step()
        self.times.end()
        self.work(7.0, "evaluation")
        self.work(3.0, "compute")


def expect(times: StepTimes, steps: int) -> None:
    """The sums are those of so many steps, and of nothing else."""
    assert (times.steps, times.samples) == (steps, 8 * steps)
    assert times.wall_s == steps * WALL_S
    assert times.phases_s == {name: steps * seconds for name, seconds in STEP_S.items()}
    assert (times.cpu_s, times.energy_j) == (2 * steps * WALL_S, 100 * steps * WALL_S)


@pytest.mark.parametrize("look_s", [0.0, 0.5])
def test_sums_are_those_of_the_steps_after_the_warm_up(look_s: float) -> None:
    """What it takes to look at processes is in no step."""
    machine = Machine(warmup_steps=2, look_s=look_s)
    machine.work(50.0)
    machine.part(3)
    expect(machine.times, 1)
    machine.part(4)
    expect(machine.times, 5)


@given(st.integers(0, 6), st.lists(st.integers(0, 4), max_size=5))
def test_the_warm_up_counts_steps_over_all_parts(warmup_steps: int, parts: list[int]) -> None:
    machine = Machine(warmup_steps)
    for steps in parts:
        machine.part(steps)
    expect(machine.times, max(0, sum(parts) - warmup_steps))


def test_phases_and_the_rest_are_the_wall_time() -> None:
    machine = Machine(warmup_steps=1)
    machine.part(4)
    times = machine.times
    assert tuple(times.phases_s) == STEP_PHASES
    assert times.wall_s - sum(times.phases_s.values()) == 3 * OTHER_S


def test_what_is_written_after_the_last_step_of_a_part_is_of_its_steps() -> None:
    machine = Machine(warmup_steps=1)
    machine.times.begin()
    machine.step()
    machine.step()
    machine.work(0.5)
    machine.times.end()
    assert machine.times.wall_s == WALL_S + 0.5


@pytest.mark.parametrize("steps", [0, 1])
def test_a_part_without_a_warm_step_has_no_time(steps: int) -> None:
    """The losses of the last warm-up step are written after it."""
    machine = Machine(warmup_steps=steps)
    machine.times.begin()
    for _ in range(steps):
        machine.step()
    machine.work(0.5)
    machine.times.end()
    expect(machine.times, 0)
    machine.part(2)
    expect(machine.times, 2)


def test_a_device_that_is_behind_is_waited_for_in_the_warm_up() -> None:
    machine = Machine(warmup_steps=2)
    machine.times.begin()
    machine.queued_s = 4.0
    for _ in range(3):
        machine.step()
    machine.phases.settle()
    machine.times.end()
    expect(machine.times, 1)


def readings(*joules: float | None) -> StepTimes:
    """Times of as many parts of one step as there are pairs of readings, which are at their beginnings and ends."""
    machine, given = Machine(warmup_steps=0), iter(joules)
    machine.times.joules = lambda: next(given)
    for _ in range(len(joules) // 2):
        machine.part(1)
    return machine.times


@pytest.mark.parametrize(
    "joules", [(None, 5.0, 6.0, 7.0), (4.0, None, 6.0, 7.0), (4.0, 5.0, None, 7.0), (4.0, 5.0, 6.0, None)]
)
def test_energy_is_unset_once_a_reading_was(joules: tuple[float | None, ...]) -> None:
    times = readings(*joules)
    assert times.energy_j is None
    assert times.wall_s == 2 * WALL_S


def test_energy_between_parts_is_not_of_steps() -> None:
    assert readings(4.0, 5.5, 100.0, 103.0).energy_j == 4.5


def test_a_reader_that_ended_takes_no_time_away() -> None:
    """Its processor time is known no longer."""
    machine = Machine(warmup_steps=0)
    machine.cpu_s = 90.0
    machine.times.begin()
    machine.cpu_s = 10.0
    machine.step()
    machine.times.end()
    assert machine.times.cpu_s == 0.0
    machine.part(1)
    assert machine.times.cpu_s == 2 * WALL_S


BUSY = """
import subprocess, sys, time
inner = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE) if len(sys.argv) > 1 else None
if inner is not None:
    inner.stdout.readline()
while time.process_time() < 0.4:
    pass
print("done", flush=True)
sys.stdin.read()
"""
"""Uses 0.4 s of a processor, and then waits; so does a child of it, where it is given one."""


def test_processor_time_of_busy_descendants_counts() -> None:
    before = processor_s()
    child = subprocess.Popen([sys.executable, "-c", BUSY, BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    used = processor_s() - before
    child.communicate()
    assert 0.75 <= used < 3.0


def test_processor_time_of_other_threads_counts() -> None:
    def busy() -> None:
        while time.thread_time() < 0.3:
            pass

    before = processor_s()
    thread = threading.Thread(target=busy)
    thread.start()
    thread.join()
    assert 0.25 <= processor_s() - before < 3.0
