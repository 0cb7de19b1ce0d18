"""Phases of a step on a simulated accelerator that works behind the host, with clocks that are known exactly."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import hpcbench
from hpcbench.data.device_prefetch import DevicePrefetcher
from hpcbench.measure.phases import Phases
from hpcbench.phase_names import PHASES, STEP_PHASES
from staging.phase_timer import PhaseTimer

LAUNCH_S = 0.001
"""What it costs the host to queue work."""


class Machine:
    """A host clock, and a device that is busy until ``ready``."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ready = 0.0
        self.waits = 0

    def queue(self, seconds: float) -> None:
        """Work for the device; the host goes on at once."""
        self.now += LAUNCH_S
        self.ready = max(self.now, self.ready) + seconds

    def event(self, device: Any = None, enable_timing: bool = False) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    """Happens when the device has done what was queued before it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def record(self, stream: Any = None) -> None:
        self.at = max(self.machine.now, self.machine.ready)

    def synchronize(self) -> None:
        self.machine.waits += 1
        self.machine.now = max(self.machine.now, self.at)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds, as torch has it."""
        return (end.at - self.at) * 1e3


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(torch, "Event", machine.event)
    return machine


def steps(phases: Phases, machine: Machine, count: int) -> None:
    """Steps of 80 ms of compute, 15 ms of exposed communication and 5 ms of optimizer on the device."""
    for _ in range(count):
        with phases.phase("input_wait"):
            machine.now += 0.002
        for name, seconds in (("compute", 0.080), ("communication", 0.015), ("optimizer", 0.005)):
            with phases.phase(name):
                machine.queue(seconds)


def test_the_host_waits_only_when_asked_to_settle(machine: Machine) -> None:
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
    steps(phases, machine, 20)
    assert machine.waits == 0
    assert machine.now == pytest.approx(20 * 0.005)
    phases.settle()
    assert machine.waits == 1
    assert machine.now == pytest.approx(machine.ready)
    phases.settle()
    assert machine.waits == 1


def test_the_wait_is_divided_as_the_device_divided_its_work(machine: Machine) -> None:
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
    for _ in range(3):
        steps(phases, machine, 50)
        phases.settle()
    found = phases.timer.summary()
    wall = found.pop("wall")
    assert wall == pytest.approx(machine.now)
    assert sum(found.values()) == pytest.approx(wall, rel=1e-12)
    assert found["input_wait"] == pytest.approx(150 * 0.002)
    # The host's own launches are in the phases too, hence not exact.
    assert found["compute"] == pytest.approx(150 * 0.080, rel=0.05)
    assert found["communication"] == pytest.approx(150 * 0.015, rel=0.05)
    assert found["optimizer"] == pytest.approx(150 * 0.005, rel=0.25)
    assert found["other"] == pytest.approx(0.0, abs=1e-9)


def test_a_host_that_is_slower_than_the_device_keeps_its_own_times(machine: Machine) -> None:
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
    for _ in range(50):
        with phases.phase("input_wait"):
            machine.now += 0.5
        with phases.phase("compute"):
            machine.queue(0.010)
    phases.settle()
    found = phases.timer.summary()
    assert found["input_wait"] == pytest.approx(25.0)
    assert found["compute"] == pytest.approx(50 * LAUNCH_S + 0.010)


def test_a_host_that_waits_for_its_device_before_it_queues_more_does_not_wait_for_input(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = SimpleNamespace(wait_stream=lambda _: None)
    module = SimpleNamespace(
        Stream=lambda: streams, current_stream=lambda: streams, stream=contextlib.nullcontext,
        Event=lambda: Event(machine),
    )  # fmt: skip
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))

    def load() -> Any:
        for _ in range(100):
            machine.now += 0.002
            yield ()

    loaded = DevicePrefetcher(torch.device("cuda"), device_wait=phases.device_wait)(load())
    for number in range(100):
        with phases.phase("input_wait"):
            next(loaded)
        for name, seconds in (("compute", 0.080), ("communication", 0.015), ("optimizer", 0.005)):
            with phases.phase(name):
                machine.queue(seconds)
        if number % 50 == 49:
            phases.settle()
    assert machine.waits > 90
    found = phases.timer.summary()
    assert found["wall"] == pytest.approx(machine.now)
    assert found["input_wait"] == pytest.approx(100 * 0.002)
    assert found["compute"] == pytest.approx(100 * 0.080, rel=0.05)
    assert found["communication"] == pytest.approx(100 * 0.015, rel=0.05)
    assert found["optimizer"] == pytest.approx(100 * 0.005, rel=0.25)


@pytest.mark.parametrize(("host_s", "waiting_s"), [(0.5, 0.0), (3.0, 1.0)])
def test_a_host_waits_for_others_only_while_its_device_has_no_work(
    machine: Machine, host_s: float, waiting_s: float
) -> None:
    """The device is busy for 2 s, with computation and the optimizer, while the host waits for another one."""
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
    for name, seconds in (("compute", 1.5), ("optimizer", 0.5)):
        with phases.phase(name):
            machine.queue(seconds)
    with phases.host_wait():
        machine.now += host_s
    phases.settle()
    found = phases.timer.totals()
    assert found["waiting"] == pytest.approx(waiting_s, abs=2 * LAUNCH_S)
    assert found["compute"] == pytest.approx(1.5, abs=3 * LAUNCH_S)
    assert found["optimizer"] == pytest.approx(0.5, abs=3 * LAUNCH_S)


def test_a_host_that_waits_for_others_in_an_evaluation_evaluates(machine: Machine) -> None:
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cpu"))
    with phases.phase("evaluation"), phases.host_wait():
        machine.now += 0.75
    with phases.phase("evaluation"), phases.device_wait():
        machine.now += 0.25
    with phases.host_wait():
        machine.now += 2.0
    phases.settle()
    assert phases.timer.totals() == {"evaluation": 1.0, "waiting": 2.0}


def test_what_steps_took_before_the_first_one_is_initialisation(machine: Machine) -> None:
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"), in_step=False)
    with phases.phase("init"), phases.steps():
        steps(phases, machine, 3)
        with phases.host_wait():
            machine.now += 1.0
    machine.now = machine.ready
    phases.charge_to_init()
    before = phases.timer.totals()
    phases.settle()
    assert machine.waits == 0
    assert before == phases.timer.totals() == pytest.approx({"init": 1.015} | dict.fromkeys(STEP_PHASES, 0.0))
    assert not phases.in_step


def test_an_exception_in_a_phase_leaves_the_spans_whole(machine: Machine) -> None:
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
    with contextlib.suppress(ZeroDivisionError), phases.phase("compute"):
        machine.queue(0.08)
        raise ZeroDivisionError
    machine.now += 1.0
    phases.settle()
    assert phases.timer.summary()["other"] == pytest.approx(1.0)


def test_the_processor_needs_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "Event")
    clock = iter(range(100)).__next__
    phases = Phases(PhaseTimer(clock=lambda: float(clock())), torch.device("cpu"))
    with phases.phase("compute"):
        pass
    phases.settle()
    assert phases.timer.summary()["compute"] == 1.0


def test_time_is_charged_to_every_phase_of_the_table_and_to_no_other_name() -> None:
    """A misspelt name would be time that no table and no plot shows; ``other`` is what the rest leaves."""
    charges = re.compile(r'\.(?:phase|span|during|enter|move)\("(\w+)"(?:, "(\w+)")?')
    texts = [path.read_text(encoding="utf-8") for path in Path(hpcbench.__path__[0]).rglob("*.py")]
    named = {name for text in texts for names in charges.findall(text) for name in names} - {""}
    assert named | {"other"} == set(PHASES)
