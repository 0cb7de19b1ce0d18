"""Messages of an accelerator: what its stream waits for is found by events, and the phases still add up."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from hpcbench.measure.communication import Communication
from hpcbench.measure.phases import Phases
from hpcbench.measure.shared_clock import SharedClock
from hpcbench.parallel.batchnorm_group import share_batch_norm
from hpcbench.parallel.group import Group, default_backend
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import Launch

pytestmark = pytest.mark.gpu

STEPS = 20


@pytest.fixture
def group(device: torch.device) -> Iterator[Group]:
    """A process group of this process alone, with the accelerator's own backend."""
    store = dist.HashStore()
    dist.init_process_group(default_backend(device), store=store, rank=0, world_size=1)
    yield Group(Launch(), device, store)
    dist.destroy_process_group()


def recorder(group: Group) -> Communication:
    return Communication(Phases(PhaseTimer(), group.device), SharedClock(group))


def busy(x: Tensor, seconds: float) -> None:
    """Keep the device busy for about so long; the host goes on at once, unless it is the device."""
    if x.device.type == "cpu":
        time.sleep(seconds)
        return
    module = torch.get_device_module(x.device)
    if not hasattr(module, "_sleep"):
        pytest.skip(f"needs an accelerator whose torch module can sleep, not {x.device.type}")
    module._sleep(int(seconds * 1e9))


@pytest.mark.parametrize("later_s", [0.0, 10.0])
def test_what_the_stream_waits_for_is_communication_or_waiting(group: Group, later_s: float) -> None:
    """A message that takes the device about as long as the computation, of a rank that is late or not."""
    communication = recorder(group)
    phases = communication.phases
    channel = communication.channel("halo", lambda own: own.unsqueeze(0) + later_s)
    x = torch.ones(1, device=group.device)
    busy(x, 0.01)
    torch.get_device_module(group.device).synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        with phases.phase("compute"):
            busy(x, 0.01)
            with channel.message():
                busy(x, 0.01)
    launched = time.perf_counter() - begin
    communication.settle()
    found = phases.timer.totals()
    line = "waiting" if later_s else "communication"
    if group.device.type == "cpu":
        assert min(found["compute"], found[line]) >= STEPS * 0.01
    else:
        assert launched < 0.5 * (found["compute"] + found[line]), "no step waits for the device"
        assert found[line] == pytest.approx(found["compute"], rel=0.1)
    # The exchange of the times of arrival is waiting, too; of one process it is short.
    assert communication.waiting_s["losses"] < 0.1 * found["compute"]
    assert communication.waiting_s["halo"] + communication.waiting_s["losses"] == pytest.approx(found["waiting"])
    assert communication.transfer_s["halo"] == pytest.approx(found["communication"], rel=0.05, abs=1e-3)


def test_messages_of_the_backward_pass_are_recorded_by_its_thread(group: Group) -> None:
    """Autograd runs the backward pass of an accelerator in a thread of its own."""
    communication = recorder(group)
    model = nn.Sequential(nn.BatchNorm2d(4)).to(group.device)
    share_batch_norm(model, group, 1, 60, communication)
    (channel,) = communication._channels
    x = torch.randn(4, 4, 8, 8, device=group.device, requires_grad=True)
    for _ in range(STEPS):
        with communication.phases.phase("compute"):
            model(x).square().sum().backward()
    assert channel.count == 2 * STEPS
    communication.settle()
    assert communication.transfer_s["batch_norm"] > 0
    summary = communication.phases.timer.summary()
    wall = summary.pop("wall")
    assert sum(summary.values()) == pytest.approx(wall)
    assert communication.transfer_s["batch_norm"] == pytest.approx(summary["communication"], rel=0.05, abs=1e-3)
