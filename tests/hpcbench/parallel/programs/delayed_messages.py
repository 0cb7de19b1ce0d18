"""Two ranks train small models while delays are injected; rank 0 prints what each recorded, and what was really slept.

In each case either rank 1 alone sleeps before its messages, or the transport sleeps in every message on both ranks.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from hpcbench.measure.communication import Communication
from hpcbench.measure.phases import Phases
from hpcbench.measure.shared_clock import SharedClock
from hpcbench.optim import tensors
from hpcbench.optim.lars import LARS
from hpcbench.parallel import batchnorm_group, mesh, shard_messages
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.node_peers import open_peers
from hpcbench.parallel.peers import Message, Peers
from hpcbench.parallel.sharded import shard_model
from hpcbench.parallel.spatial.layers import split_layers
from hpcbench.train.loss_buffer import LossBuffer
from hpcbench.train.observers import StepInfo
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

MOST_STEPS, MOST_DELAYED = 30, 12
"""Without and with a delay, in search of a step that other work on the machine hardly disturbs."""
DELAY_S = 0.8
TRIES = 3
"""After so many disturbed steps the delay is twice as long, and the disturbance half as large a part of it."""
QUIET = 0.02
"""Time that a step may take beyond that of a usual one and of what was slept, as a part of the latter."""
AHEAD_S = 1234.5
"""How far the clock of the second machine is ahead of the first, where two are pretended."""
Step = Callable[[], None]


class Delay:
    """Sleeps where it is asked to, and adds up what the sleeps really took."""

    def __init__(self) -> None:
        self.on, self.seconds, self.slept_s = "", DELAY_S, 0.0

    def sleep(self) -> None:
        begin = time.perf_counter()
        time.sleep(self.seconds)
        self.slept_s += time.perf_counter() - begin

    def __call__(self, place: str) -> None:
        if self.on == place:
            self.sleep()


DELAY = Delay()


class SlowPeers:
    """Peers whose messages take longer where the delay is at ``place``."""

    def __init__(self, peers: Peers, place: str = "transfer") -> None:
        self.peers, self.rank, self.size, self.place = peers, peers.rank, peers.size, place

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        wait = self.peers.start(sends, receives)

        def finish() -> None:
            DELAY(self.place)
            wait()

        return finish

    def all_reduce(self, tensor: Tensor) -> Tensor:
        DELAY(self.place)
        return self.peers.all_reduce(tensor)

    def stacked(self, local: Tensor) -> Tensor:
        if local.dtype != torch.float64:  # the recorder exchanges its times, which are
            DELAY(self.place)
        return self.peers.stacked(local)


class SlowWork:
    """An all-reduce under way that takes longer."""

    def __init__(self, work: Any, place: str) -> None:
        self.work, self.place = work, place

    def wait(self) -> None:
        DELAY(self.place)
        self.work.wait()


class SlowGroup(Group):
    """A group whose sums take longer."""

    place = "transfer"

    def all_reduce_sum_async(self, tensor: Tensor) -> SlowWork:
        return SlowWork(super().all_reduce_sum_async(tensor), self.place)

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        DELAY(self.place)
        return super().all_reduce_sum(tensor)


def slow_peers(processes: Any, group: Group, timeout_s: float) -> Peers:
    return SlowPeers(open_peers(processes, group, timeout_s))


def slowly(send: Callable[..., Any], place: str = "transfer") -> Callable[..., Any]:
    def collective(*tensors: Any, **options: Any) -> Any:
        DELAY(place)
        return send(*tensors, **options)

    return collective


class Rank:
    """What a rank trains with."""

    sleeper = 1
    """The rank that sleeps."""

    def __init__(self, group: Group, clock: Callable[[], float] = time.perf_counter, machine: str = "one") -> None:
        self.group = group
        self.phases = Phases(PhaseTimer(clock), torch.device("cpu"))
        self.communication = Communication(self.phases, SharedClock(group, clock, machine))

    def steps(self, who: str, where: str, passes: Sequence[Step], usual_s: float = 0.0) -> dict[str, Any]:
        """The figures of a step in which in pass ``where`` a rank or the transport sleeps.

        Of some steps it is the one that took least time beyond a usual one and what was slept, as a part of the latter.
        There are no more steps once that is little, so that other work on the machine hardly disturbed it.
        """
        self.step("", "", passes)
        least, chosen = float("inf"), {}
        for number in range(MOST_DELAYED if who else MOST_STEPS):
            DELAY.seconds = DELAY_S * 2 ** (number // TRIES)
            found = self.step(who, where, passes)
            everyone = self.group.all_gather_object((found["phases"]["wall"], found["slept_s"]))
            slept_s = max(slept for _, slept in everyone)
            beyond = (max(wall for wall, _ in everyone) - slept_s - usual_s) / (slept_s or 1.0)
            if beyond < least:
                least, chosen = beyond, found
            if who and beyond < QUIET:
                break
        return chosen

    def step(self, who: str, where: str, passes: Sequence[Step]) -> dict[str, Any]:
        self.communication.settle()
        before, DELAY.slept_s = self.figures(), 0.0
        for number, each in enumerate(passes):
            here = where == str(number)
            if here and who == "rank" and self.group.rank == self.sleeper:
                with self.phases.phase("compute"):
                    DELAY.sleep()
            DELAY.on = self.slow_place(who) if here else ""
            with self.phases.phase("compute"):
                each()
            DELAY.on = ""
        self.communication.settle()
        after = self.figures()
        found = {key: {name: value - before[key].get(name, 0.0) for name, value in after[key].items()} for key in after}
        return {**found, "slept_s": DELAY.slept_s}

    def slow_place(self, who: str) -> str:
        """Where this rank sleeps in messages."""
        return who

    def figures(self) -> dict[str, dict[str, float]]:
        return {
            "phases": self.phases.timer.summary(),
            "transfer": dict(self.communication.transfer_s),
            "waiting": dict(self.communication.waiting_s),
        }


class Model:
    """Forward and backward pass of a model, as two passes of a step."""

    def __init__(self, model: nn.Module, x: Tensor) -> None:
        self.model, self.x = model, x

    def forward(self) -> None:
        self.y = self.model(self.x)

    def backward(self) -> None:
        self.y.square().sum().backward()


def gradients(rank: Rank) -> list[Step]:
    model = Model(nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)), torch.randn(4, 32))
    reducer = GradientReducer(model.model.parameters(), rank.group, 4000, rank.communication)

    def backward() -> None:
        reducer.enabled = True
        model.backward()
        reducer.finish()
        model.model.zero_grad()

    return [model.forward, backward]


def halo(rank: Rank) -> list[Step]:
    made = mesh.make_mesh(rank.group, MeshShape(1, (2,)), recorder=rank.communication)
    convolutions = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1))
    split_layers(convolutions, (1, 16, 8), made.axes)
    model = Model(convolutions, torch.randn(2, 1, 8, 8))
    return [model.forward, model.backward]


def batch_norm(rank: Rank) -> list[Step]:
    model = nn.Sequential(nn.BatchNorm2d(3))
    batchnorm_group.share_batch_norm(model, rank.group, 2, 60, rank.communication)
    made = Model(model, torch.randn(4, 3, 5, 5, requires_grad=True))
    return [made.forward, made.backward]


def sharding(rank: Rank) -> list[Step]:
    model = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    shard_model(model, rank.group, MeshShape(2), 500, rank.communication)
    made = Model(model, torch.randn(4, 32))
    return [made.forward, made.backward]


def norms(rank: Rank) -> list[Step]:
    """Of the layers of a sharded model, in an optimizer's step: a sum over the ranks."""
    model = nn.Sequential(nn.Linear(32, 32))
    reducer = shard_model(model, rank.group, MeshShape(2), 500, rank.communication)
    made = Model(model, torch.randn(4, 32))
    made.forward()
    made.backward()
    optimizer = LARS(model.parameters(), lr=0.01)

    def update() -> None:
        with reducer.record_norms():
            optimizer.step()

    return [update]


def losses(rank: Rank) -> list[Step]:
    buffer = LossBuffer(rank.group, rank.communication)

    def flush() -> None:
        buffer.after_optimizer(StepInfo(1, 4, 4, 0.1), torch.ones(()))
        buffer.flush(1)

    return [flush]


CASES = {"gradients": (gradients, "1"), "halo": (halo, "01"), "batch_norm": (batch_norm, "01"),
         "sharding": (sharding, "01"), "losses": (losses, "0"), "norms": (norms, "0")}  # fmt: skip
"""How a step of each kind is made, and the passes in which something is sent."""


def print_of_all(group: Group, result: dict[str, Any]) -> None:
    """Print what every rank found, as JSON by rank 0, and leave the group."""
    everyone = group.all_gather_object(result)
    if group.rank == 0:
        print(json.dumps(everyone), flush=True)
    group.close()


def main() -> None:
    torch.set_num_threads(1)
    plain = connect(detect(os.environ), timeout_s=60)
    mesh.open_peers = batchnorm_group.open_peers = slow_peers
    shard_messages._all_gather = slowly(shard_messages._all_gather)
    shard_messages._reduce_scatter = slowly(shard_messages._reduce_scatter)
    tensors.dist = SimpleNamespace(all_reduce=slowly(tensors.dist.all_reduce))
    slow = SlowGroup(plain.launch, plain.device, plain.store)
    rank, found = Rank(slow), {}
    for kind, (make, sends) in CASES.items():
        passes = make(rank)
        found[f"{kind} none"] = rank.steps("", "", passes)
        usual_s = max(rank.group.all_gather_object(found[f"{kind} none"]["phases"]["wall"]))
        for where in sends:
            for who in ("rank", "transfer"):
                found[f"{kind} {where} {who}"] = rank.steps(who, where, passes, usual_s)
    far = Rank(slow, lambda: time.perf_counter() + AHEAD_S * plain.rank, f"machine {plain.rank}")
    passes = gradients(far)
    found |= {"apart none": far.steps("", "", passes), "apart 1 rank": far.steps("rank", "1", passes, usual_s)}
    print_of_all(plain, found)


if __name__ == "__main__":
    main()
    leave_together(0)
