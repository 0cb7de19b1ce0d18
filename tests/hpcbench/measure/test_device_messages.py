"""Messages of each kind on a simulated accelerator: what its stream waits for is in their line, in no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from hpcbench.measure.communication import Communication
from hpcbench.measure.phases import Phases
from hpcbench.parallel import shard_messages
from hpcbench.parallel.batchnorm_group import replace_batch_norm
from hpcbench.parallel.exposed import recorded
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.peers import Message
from hpcbench.parallel.shard_messages import ShardMessages
from hpcbench.parallel.spatial.convolution import SplitConvolution
from staging.phase_timer import PhaseTimer
from tests.hpcbench.measure.test_communication import OneClock
from tests.hpcbench.measure.test_phases import LAUNCH_S, Machine, machine  # noqa: F401

STEPS = 20
FORWARD_S, BACKWARD_S = 0.040, 0.080
"""Of a layer on the device."""
SCATTER = 2 * LAUNCH_S / (FORWARD_S + BACKWARD_S)


class Rank:
    """One of two ranks, which arrive together, with an accelerator and a network that carries one message at a time."""

    rank, size, world_size = 0, 2, 2

    def __init__(self, machine: Machine, message_s: float) -> None:  # noqa: F811
        self.machine, self.message_s = machine, message_s
        self.phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
        self.recorder = Communication(self.phases, OneClock())
        self.free = 0.0
        """When the network has carried all that was sent."""
        self.messages = 0

    def send(self) -> Callable[[], None]:
        """Start a message when the device has come here; the result makes its stream wait for it."""
        self.messages += 1
        arrives = self.free = max(self.machine.now, self.machine.ready, self.free) + self.message_s

        def wait() -> None:
            self.machine.ready = max(self.machine.ready, arrives)

        return wait

    def wait_for_all(self) -> None:
        """The stream waits for all that was sent."""
        self.machine.ready = max(self.machine.ready, self.free)

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As of ``Peers``."""
        for _, room in receives:
            room.zero_()
        return self.send()

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """As of ``Peers``."""
        self.send()()
        return tensor

    def stacked(self, local: Tensor) -> Tensor:
        """As of ``Peers``; times of arrival, of which there are many, travel after the steps."""
        if local.dtype != torch.float64:
            self.send()()
        return torch.stack([local, local])

    def latest(self, arrivals: Tensor) -> Tensor:
        """As of ``Group``."""
        return arrivals.unsqueeze(0)

    def all_reduce_sum_async(self, tensor: Tensor) -> Any:
        """As of ``Group``."""
        return Sent(self.send())

    def layer(self, x: Tensor) -> Tensor:
        """A layer that computes on the device."""
        return Layer.apply(x, self.machine)

    def check(self, kind: str, exposed_s: float, layers: int) -> None:
        """So many seconds of each step are exposed messages of this kind, and the others those of ``layers``."""
        self.recorder.settle()
        transfer_s = dict(self.recorder.transfer_s)
        found = self.phases.timer.summary()
        assert found["communication"] == pytest.approx(transfer_s[kind], rel=1e-9)
        # The host's launches of layers are in their phase, and the rest is divided as the device was busy.
        assert transfer_s.pop(kind) == pytest.approx(STEPS * exposed_s, rel=SCATTER)
        assert found["compute"] == pytest.approx(STEPS * layers * (FORWARD_S + BACKWARD_S), rel=SCATTER)
        assert set(transfer_s.values()) == {0.0}
        assert found["waiting"] == 0.0
        assert self.machine.waits == 1, "no step waits for the device"


class Sent:
    """A message under way, as ``torch.distributed`` has it."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait


class Layer(torch.autograd.Function):
    """Hands on what it is given, which takes the device a while."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, machine: Machine) -> Tensor:  # noqa: F811
        ctx.machine = machine
        machine.queue(FORWARD_S)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.machine.queue(BACKWARD_S)
        return gradient, None


def test_batch_norm_waits_for_both_of_its_messages(machine: Machine) -> None:  # noqa: F811
    """The sums of the forward pass and those of the backward pass, with nothing to do meanwhile."""
    rank = Rank(machine, 0.010)
    model = nn.Sequential(nn.BatchNorm2d(3))
    replace_batch_norm(model, recorded(rank, rank.recorder, "batch_norm"))
    for _ in range(STEPS):
        with rank.phases.phase("compute"):
            rank.layer(model(torch.randn(2, 3, 4, 4, requires_grad=True))).sum().backward()
    assert rank.messages == 2 * STEPS
    rank.check("batch_norm", 0.020, layers=1)


def test_a_halo_that_is_entered_twice_counts_once(machine: Machine) -> None:  # noqa: F811
    """Once where it is sent, and once where its step waits for it; a halo each way."""
    rank = Rank(machine, 0.010)
    layer = SplitConvolution(nn.Conv2d(3, 3, 3, padding=1), (8, 8), {2: recorded(rank, rank.recorder, "halo")})
    for _ in range(STEPS):
        with rank.phases.phase("compute"):
            layer(rank.layer(torch.randn(2, 3, 4, 8, requires_grad=True))).sum().backward()
    assert rank.messages == 2 * STEPS
    rank.check("halo", 0.020, layers=1)


@pytest.mark.parametrize(("message_s", "exposed_s"), [
    pytest.param(0.010, 0.010, id="only the last is waited for"),
    pytest.param(BACKWARD_S + 0.030, 2 * 0.030 + BACKWARD_S, id="the first one, too"),
])  # fmt: skip
def test_gradients_travel_while_the_backward_pass_goes_on(
    machine: Machine, message_s: float, exposed_s: float  # noqa: F811
) -> None:  # fmt: skip
    """Two layers, a bucket of gradients for each; that of the second travels during the backward pass of the first."""
    rank = Rank(machine, message_s)
    weights = [nn.Parameter(torch.ones(())) for _ in range(2)]
    reducer = GradientReducer(weights, rank, 1, rank.recorder)  # type: ignore[arg-type]
    reducer.enabled = True
    for _ in range(STEPS):
        with rank.phases.phase("compute"):
            x = torch.ones((), requires_grad=True)
            for weight in weights:
                x = rank.layer(x * weight)
            x.backward()
            reducer.finish()
    assert rank.messages == 2 * STEPS
    rank.check("gradients", exposed_s, layers=2)


@pytest.fixture
def of_two() -> Iterator[Any]:
    """A process group of two, of whom one is here; nothing is sent. To be asked for before the simulated machine."""
    import_module("torch._dynamo")  # as FSDP2 does: it derives from the class of torch's own events
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield dist.group.WORLD
    dist.destroy_process_group()


class Scaled(nn.Module):
    """A layer with a parameter."""

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self.rank, self.weight = rank, nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.rank.layer(x * self.weight)


def test_shards_are_waited_for_where_a_pass_needs_them(
    of_two: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    """Two units: a forward pass waits for the parameters of both. In the backward pass those of the first come while
    the second computes, and both sums of gradients are waited for in the end."""
    rank = Rank(machine, 0.010)
    monkeypatch.setattr(shard_messages, "_all_gather", lambda *_, **__: rank.send())
    monkeypatch.setattr(shard_messages, "_reduce_scatter", lambda *_, **__: rank.send())
    model = nn.Sequential(Scaled(rank), Scaled(rank))
    mesh = DeviceMesh("cpu", torch.arange(2), mesh_dim_names=("data",))
    messages = ShardMessages(of_two, None, rank.recorder, on_host=False)
    for module in (model[0], model):
        fully_shard(module, mesh=mesh)
    for module in (model[0], model):
        assert isinstance(module, FSDPModule)
        stream_waits(module, rank)
        messages.take_over(module)
    for _ in range(STEPS):
        with rank.phases.phase("compute"):
            model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    assert rank.messages == 5 * STEPS
    rank.check("sharding", 0.040, layers=2)


def stream_waits(module: FSDPModule, rank: Rank) -> None:
    """Where FSDP2 makes the stream of an accelerator wait, that of the simulated one does."""
    state: Any = module._get_fsdp_state()
    for unit in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
        for name in ("wait_for_unshard", "finalize_backward"):
            setattr(unit, name, both(getattr(unit, name), rank.wait_for_all))


def both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    """One after the other."""

    def called() -> None:
        one()
        other()

    return called
