"""Two ranks with accelerators on clocks that are known exactly: the training loop on one, arithmetic for the other."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hpcbench.measure.communication import MOST_MESSAGES, Communication
from hpcbench.measure.phases import Phases
from hpcbench.parallel.group import Group
from hpcbench.train.loop import Trainer
from hpcbench.train.loss_buffer import LossBuffer
from hpcbench.train.observers import Observers, StepInfo, StepObserver
from hpcbench.train.state import State
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import Launch
from tests.hpcbench.measure.test_communication import OneClock
from tests.hpcbench.measure.test_phases import LAUNCH_S, Machine

T = TypeVar("T")

COMPUTE_S, TRANSFER_S, OPTIMIZER_S = 0.080, 0.010, 0.005
"""Of a step, on the device."""


class OtherRank:
    """A rank whose host is late by ``late_s`` in each step, before it queues the same work."""

    def __init__(self, late_s: float, compute_s: float) -> None:
        self.late_s, self.compute_s = late_s, compute_s
        self.now = self.ready = 0.0
        self.arrivals: list[float] = []
        """When its device arrived at the gradients of each step, since times were last exchanged."""
        self.votes: list[float] = []
        """When its host cast its vote in each step."""

    def queue_compute(self) -> None:
        self.now += self.late_s + LAUNCH_S
        self.ready = max(self.now, self.ready) + self.compute_s
        self.arrivals.append(self.ready)

    def finish_step(self, gradients_at: float) -> None:
        self.now += 2 * LAUNCH_S
        self.ready = gradients_at + OPTIMIZER_S
        self.votes.append(self.now)

    def settle(self) -> float:
        """Its host waits for its device; returns until when."""
        self.now = max(self.now, self.ready)
        return self.now

    def exchange(self, arrivals: Tensor) -> Tensor:
        """As of ``Arrivals``."""
        found = torch.stack([arrivals, torch.tensor(self.arrivals, dtype=torch.float64)])
        self.arrivals.clear()
        return found


class FakeGroup(Group):
    """Two ranks, of which this one waits for the other as the clocks say."""

    def __init__(self, machine: Machine, other: OtherRank) -> None:
        super().__init__(Launch(world_size=2), torch.device("cpu"), None)
        self.machine, self.other = machine, other
        self.met_at = 0.0

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        self.met_at = self.other.settle()
        self.machine.now = self.other.now = max(self.machine.now, self.other.now)
        return tensor

    def latest(self, arrivals: Tensor) -> Tensor:
        return arrivals.clamp(min=self.met_at).unsqueeze(0)

    def all_gather_object(self, value: T) -> list[T]:
        return [value, value]


class FakeVotes:
    """Stands for ``torch.distributed`` where votes are cast: one in each step, of which all ranks wait for the last."""

    ReduceOp = dist.ReduceOp

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.other: OtherRank | None = None
        self.cast = 0
        self.other_vote = 0

    def new_group(self, **_: Any) -> None:
        """A process group of its own."""

    def all_reduce(self, vote: Tensor, **_: Any) -> Any:
        self.cast += 1
        vote.clamp_(min=self.other_vote)
        return SimpleNamespace(wait=partial(self.wait, self.cast - 1))

    def wait(self, step: int) -> None:
        assert self.other is not None
        self.machine.now = max(self.machine.now, self.other.votes[step])


class FastRank:
    """This rank: the phases and messages of its steps, and the loop that looks at them."""

    def __init__(
        self, machine: Machine, late_s: float, compute_s: float = COMPUTE_S, most: int = MOST_MESSAGES
    ) -> None:
        self.machine, self.compute_s = machine, compute_s
        self.other = OtherRank(late_s, compute_s)
        self.phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cuda"))
        self.communication = Communication(self.phases, OneClock(), most)
        self.group = FakeGroup(machine, self.other)
        self.gradients = self.communication.channel("gradients", self.other.exchange)
        self.losses = LossBuffer(self.group, self.communication)
        self.trainer = self.make_trainer([self.losses])

    def make_trainer(self, observers: list[StepObserver]) -> Trainer:
        run: Any = SimpleNamespace(
            group=self.group, phases=self.phases, communication=self.communication, is_first=False,
            config=SimpleNamespace(parallel=SimpleNamespace(timeout_s=None)),
            console=SimpleNamespace(loss=lambda _: None), progress=SimpleNamespace(touch=lambda: None),
            interrupts=SimpleNamespace(received=None), task=None,
        )  # fmt: skip
        data: Any = SimpleNamespace(training=[])
        unused: Any = None
        step: Any = SimpleNamespace(observers=Observers(observers))
        return Trainer(run, data, step, unused, unused, unused, State())

    def step(self, loss: float = 1.0) -> None:
        """Compute, wait for the sum of gradients, and update."""
        self.other.queue_compute()
        with self.phases.phase("compute"):
            self.machine.queue(self.compute_s)
            with self.gradients.message():
                self.machine.ready = max(self.machine.ready, self.other.ready)
                self.machine.queue(TRANSFER_S)
        with self.phases.phase("optimizer"):
            self.machine.queue(OPTIMIZER_S)
        self.other.finish_step(self.machine.ready - OPTIMIZER_S)
        state = self.trainer.state
        state.step += 1
        self.losses.after_optimizer(StepInfo(state.step, 8 * state.step, 8, 0.1), torch.tensor(loss))
