"""Messages on clocks that are known exactly: on the host, and on an accelerator that works behind it."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import Tensor

from hpcbench.measure.communication import Communication
from hpcbench.measure.phases import Phases
from hpcbench.measure.step_times import StepTimes
from staging.phase_timer import PhaseTimer
from tests.hpcbench.measure.test_phases import LAUNCH_S, Machine, machine  # noqa: F401


class OneClock:
    """All ranks read the same clock."""

    def measure(self) -> None:
        """Nothing differs."""

    def common(self, times: Tensor) -> Tensor:
        return times


class DriftingClock(OneClock):
    """The clock of this rank's machine is slow by a thousandth."""

    def common(self, times: Tensor) -> Tensor:
        return times * 1.001


class Others:
    """The other members of a channel, whose arrivals at each message are given."""

    def __init__(self, *arrivals: list[float]) -> None:
        self.arrivals = arrivals

    def __call__(self, local: Tensor) -> Tensor:
        return torch.stack([local, *(torch.tensor(each, dtype=torch.float64) for each in self.arrivals)])


class Host:
    """A rank on a host whose clock the test moves."""

    def __init__(self, most: int = 100, clock: OneClock | None = None) -> None:
        self.now = 0.0
        self.phases = Phases(PhaseTimer(clock=lambda: self.now), torch.device("cpu"))
        self.recorder = Communication(self.phases, clock or OneClock(), most)

    def work(self, seconds: float) -> None:
        self.now += seconds


def test_what_is_waited_before_the_last_other_arrives_is_waiting_and_the_rest_transfer() -> None:
    host = Host()
    channel = host.recorder.channel("halo", Others([4.0], [7.0]))
    with host.phases.phase("compute"):
        host.work(3.0)
        with channel.message():
            host.work(6.0)
        host.work(1.0)
    host.recorder.settle()
    assert (host.recorder.waiting_s["halo"], host.recorder.transfer_s["halo"]) == (4.0, 2.0)
    summary = host.phases.timer.summary()
    assert summary == {"compute": 4.0, "communication": 2.0, "waiting": 4.0, "other": 0.0, "wall": 10.0}


def test_seconds_are_those_of_the_rank_s_own_clock_as_its_phases_are() -> None:
    host = Host(clock=DriftingClock())
    channel = host.recorder.channel("halo", Others([4.004, 6.006], [0.0, 0.0]))
    for _ in range(2):
        with channel.message():
            host.work(6.0)
    host.recorder.settle()
    summary = host.phases.timer.summary()
    assert host.recorder.transfer_s["halo"] == pytest.approx(summary["communication"], rel=1e-12)
    assert host.recorder.waiting_s["halo"] == pytest.approx(summary["waiting"], rel=1e-12) == pytest.approx(4.004)
    assert summary["communication"] + summary["waiting"] == pytest.approx(12.0, rel=1e-12)


def test_only_those_that_a_message_is_exchanged_with_are_waited_for() -> None:
    host = Host()
    channel = host.recorder.channel("halo", Others([1.0, 4.0], [9.0, 9.0]))
    for members in ({1}, set()):
        with channel.message(members):
            host.work(2.0)
    host.recorder.settle()
    assert (host.recorder.waiting_s["halo"], host.recorder.transfer_s["halo"]) == (1.0, 3.0)


def test_computation_while_a_message_is_under_way_is_not_exposed() -> None:
    """A bucket is launched at 0, its step waits from 5 to 9, and another rank launched it at 6."""
    host = Host()
    channel = host.recorder.channel("gradients", Others([6.0]))
    message = channel.message()
    with host.phases.phase("compute"):
        host.work(5.0)
        with message:
            host.work(4.0)
    host.recorder.settle()
    assert (host.recorder.waiting_s["gradients"], host.recorder.transfer_s["gradients"]) == (1.0, 3.0)
    assert host.phases.timer.totals()["compute"] == 5.0


def test_a_message_that_is_waited_for_twice_counts_both_times() -> None:
    host = Host()
    message = host.recorder.channel("halo", Others([4.0])).message()
    for seconds in (1.0, 2.0, 3.0):  # from 0 to 1, 2 to 4 and 5 to 8
        with message:
            host.work(seconds)
        host.work(1.0)
    host.recorder.settle()
    assert (host.recorder.waiting_s["halo"], host.recorder.transfer_s["halo"]) == (3.0, 3.0)


def test_an_evaluation_has_no_communication() -> None:
    host = Host()
    channel = host.recorder.channel("halo", Others([]))
    with host.phases.phase("evaluation"), channel.message():
        host.work(2.0)
    host.recorder.settle()
    assert host.recorder.transfer_s["halo"] == 0.0
    assert host.phases.timer.summary()["evaluation"] == 2.0


def test_messages_beyond_what_is_kept_are_transfer() -> None:
    host = Host(most=2)
    channel = host.recorder.channel("halo", Others([9.0, 9.0]))
    for _ in range(5):
        with channel.message():
            host.work(1.0)
    host.recorder.settle()
    assert (host.recorder.waiting_s["halo"], host.recorder.transfer_s["halo"], host.recorder.unsplit) == (2.0, 3.0, 3)
    with channel.message():
        host.work(1.0)
    channel.exchange = Others([5.5])
    host.recorder.settle()
    assert host.recorder.waiting_s["halo"] == 2.5


def test_an_error_in_a_message_leaves_the_phases_whole() -> None:
    host = Host()
    message = host.recorder.channel("losses", Others([0.0])).message()
    with contextlib.suppress(RuntimeError), host.phases.phase("compute"), message:
        host.work(1.0)
        raise RuntimeError("the other rank has gone")
    host.work(1.0)
    host.recorder.settle()
    assert host.phases.timer.summary() == {
        "compute": 0.0, "communication": 1.0, "waiting": 0.0, "other": 1.0, "wall": 2.0
    }  # fmt: skip


def test_a_rank_that_comes_late_to_the_exchange_of_times_is_waited_for() -> None:
    """It came in time for the message; the time until it comes belongs to no phase otherwise."""
    host = Host()

    def late(local: Tensor) -> Tensor:
        host.work(5.0)
        return local.unsqueeze(0)

    channel = host.recorder.channel("halo", late)
    with channel.message():
        host.work(2.0)
    host.recorder.settle()
    assert (host.recorder.transfer_s["halo"], host.recorder.waiting_s["losses"]) == (2.0, 5.0)
    assert host.phases.timer.summary() == {"communication": 2.0, "waiting": 5.0, "other": 0.0, "wall": 7.0}


def test_messages_of_the_warm_up_are_in_no_warm_step() -> None:
    host = Host()
    channel = host.recorder.channel("halo", lambda own: own.unsqueeze(0) + 0.25)
    times = StepTimes(host.phases, 1, host.recorder, clock=lambda: host.now, processor=lambda: 0.0)
    times.begin()
    for _ in range(4):
        with host.phases.phase("compute"):
            host.work(3.0)
            with channel.message():
                host.work(1.0)
        times.step(8)
    host.recorder.settle()
    times.end()
    assert (times.steps, times.wall_s, times.messages_s["halo"]) == (3, 12.0, 2.25)
    assert times.phases_s == {
        "input_wait": 0.0, "compute": 9.0, "communication": 2.25, "waiting": 0.75, "optimizer": 0.0
    }  # fmt: skip


class Device:
    """A rank with an accelerator, whose others arrive so many seconds after it at each message."""

    def __init__(self, machine: Machine, *, later_s: float) -> None:  # noqa: F811
        self.machine = machine
        self.phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
        self.recorder = Communication(self.phases, OneClock())
        self.halo = self.recorder.channel("halo", lambda own: own.unsqueeze(0) + later_s)

    def step(self) -> None:
        """80 ms of compute, in which the device waits 20 ms for a halo, and 5 ms of the optimizer."""
        with self.phases.phase("compute"):
            self.machine.queue(0.040)
            with self.halo.message():
                self.machine.queue(0.020)
            self.machine.queue(0.040)
        with self.phases.phase("optimizer"):
            self.machine.queue(0.005)


@pytest.mark.parametrize("later_s", [0.0, 0.015, 0.5])
def test_a_device_s_messages_are_told_from_its_events(machine: Machine, later_s: float) -> None:  # noqa: F811
    device = Device(machine, later_s=later_s)
    for _ in range(3):
        for _ in range(50):
            device.step()
        assert machine.waits == 0, "no step waits for the device"
        device.recorder.settle()
        machine.waits = 0
    found = device.phases.timer.summary()
    wall = found.pop("wall")
    assert wall == pytest.approx(machine.now)
    assert sum(found.values()) == pytest.approx(wall, rel=1e-12)
    waiting = 150 * min(later_s, 0.020)
    # The host's own launches are in the phases, too, hence not exact.
    launches = 150 * LAUNCH_S
    assert found["waiting"] == pytest.approx(waiting, rel=0.05)
    assert found["communication"] == pytest.approx(150 * 0.020 - waiting, rel=0.05, abs=1.5 * launches)
    assert found["compute"] == pytest.approx(150 * 0.080, rel=0.05)
    assert device.recorder.transfer_s["halo"] == pytest.approx(found["communication"], rel=1e-9)
    assert device.recorder.waiting_s["halo"] == pytest.approx(found["waiting"], rel=1e-9)


def test_a_message_of_a_device_that_was_launched_early_is_exposed_from_the_wait_on(
    machine: Machine,  # noqa: F811
) -> None:
    """Buckets travel while the device computes: launched at 0, waited for from 80 to 90 ms, the other came at 85 ms."""
    device = Device(machine, later_s=0.0)
    bucket = device.recorder.channel("gradients", lambda own: own.unsqueeze(0) + 0.085)
    with device.phases.phase("compute"):
        message = bucket.message()
        machine.queue(0.080)
        with message:
            machine.queue(0.010)
    begin = machine.ready
    device.recorder.settle()
    assert begin == machine.now
    # One launch of the host comes before the device starts.
    assert device.recorder.waiting_s["gradients"] == pytest.approx(0.004, abs=2 * LAUNCH_S)
    assert device.recorder.transfer_s["gradients"] == pytest.approx(0.006, abs=2 * LAUNCH_S)


def test_the_device_may_be_waited_for_before_the_messages_are_told_apart(machine: Machine) -> None:  # noqa: F811
    """Each look at the device divides its own part of the steps; the messages of all of them are exchanged at once."""
    device, arrivals = Device(machine, later_s=0.010), []
    exchange = device.halo.exchange
    device.halo.exchange = lambda own: arrivals.append(len(own)) or exchange(own)
    for _ in range(2):
        for _ in range(50):
            device.step()
        device.phases.settle()
    device.recorder.settle()
    assert arrivals == [100]
    assert device.recorder.waiting_s["halo"] == pytest.approx(100 * 0.010, rel=0.05)
    assert device.recorder.transfer_s["halo"] == pytest.approx(100 * 0.010, rel=0.05, abs=150 * LAUNCH_S)
    found = device.phases.timer.totals()
    assert found["waiting"] == pytest.approx(device.recorder.waiting_s["halo"], rel=1e-9)


def test_a_message_that_no_step_waited_for_has_no_time(machine: Machine) -> None:  # noqa: F811
    device = Device(machine, later_s=0.5)
    device.halo.message()
    device.recorder.settle()
    assert (device.recorder.waiting_s["halo"], device.recorder.transfer_s["halo"]) == (0.0, 0.0)


def test_what_the_host_itself_waits_for_needs_no_events(machine: Machine) -> None:  # noqa: F811
    device = Device(machine, later_s=0.0)
    losses = device.recorder.channel("losses", lambda own: own.unsqueeze(0) + 0.25, on_host=True)
    with losses.message():
        machine.now += 1.0
    device.recorder.settle()
    assert (device.recorder.waiting_s["losses"], device.recorder.transfer_s["losses"]) == (0.25, 0.75)
    assert machine.waits == 0
