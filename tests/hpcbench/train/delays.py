"""Delays in trainings: one rank is held up before a message of some kind, in it, or in other work.

All ranks read one clock, which moves in these delays alone: how busy the machine is does not show. A delay begins once
the other ranks wait for a message of this one. Messages are delayed below what records them, or before it is called, so
that nothing here depends on what is recorded.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from hpcbench.data.loader import BatchReader
from hpcbench.optim import tensors
from hpcbench.parallel import batchnorm_group, exposed, mesh, shard_messages
from hpcbench.parallel.gradients import GradientReducer, _Bucket
from hpcbench.parallel.node_peers import NodePeers
from hpcbench.parallel.peers import Message, Peers
from hpcbench.train import finalize, loop, noise_scale, run, setup
from hpcbench.train.loss_buffer import LossBuffer
from hpcbench.train.noise_scale import NoiseScale
from hpcbench.train.training_step import TrainingStep

MOST_S = 300.0
"""How long the others may take to where they wait, on a busy machine."""

WARM_UP, EXAMPLES = -1, -2
"""Stand for passes that are no steps: those before the clock, and those that keep examples behind it."""


@dataclass(frozen=True)
class Delay:
    """Once in a pass of a step, which comes to the place several times."""

    step: int
    backward: bool
    at: float
    """From 0 for the first of these times to 1, behind the last."""
    seconds: float


class DelayClock:
    """Seconds of delays so far, and the last message that each rank has sent and that it waits for, in ``path``.

    All ranks send the same messages in the same order, by which they are counted. Only the rank ``slow`` delays, and
    who waits for others alone does not wait for it.
    """

    def __init__(self, path: Path, rank: int, ranks: int, slow: int) -> None:
        self.rank, self.slow = rank, slow
        shared = np.memmap(path, np.float64, "r+", shape=(1 + 2 * ranks,))
        self.time, self.sent, self.waits = shared[:1], shared[1 : 1 + ranks], shared[1 + ranks :]

    def now(self) -> float:
        """What every rank takes for the time."""
        return float(self.time[0])

    def delay(self, seconds: float) -> None:
        """Let time pass, once the others wait for this rank."""
        others = np.arange(len(self.sent)) != self.rank
        deadline = time.monotonic() + MOST_S
        while not (self.waits[others] > self.sent[self.rank]).all():
            assert time.monotonic() < deadline, "nobody waits for this rank"
            time.sleep(0.001)
        self.time += seconds

    def send(self, collective: Callable[..., Any]) -> Callable[..., Any]:
        """``collective``, counted."""

        @wraps(collective)
        def counted(*words: Any, **more: Any) -> Any:
            self.sent[self.rank] += 1
            number = self.sent[self.rank]
            if more.get("async_op"):
                return Work(self.waiting(number, collective(*words, **more).wait))
            return self.waiting(number, collective)(*words, **more)

        return counted

    def start(self, peers: NodePeers, start: Callable[..., Callable[[], None]]) -> Callable[..., Callable[[], None]]:
        """The same of an exchange between ``peers``, ranks in a row, which is waited for later.

        Who only sends, as with a halo of one side, is done when it is sent, and does not wait for the other.
        """

        def counted(sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
            self.sent[self.rank] += 1
            wait = start(peers, sends, receives)
            with_slow = self.rank // peers.size == self.slow // peers.size
            return self.waiting(self.sent[self.rank], wait) if with_slow and receives else wait

        return counted

    def waiting(self, number: float, wait: Callable[..., Any]) -> Callable[..., Any]:
        """``wait``, of which the others are told."""

        def told(*words: Any, **more: Any) -> Any:
            self.waits[self.rank] = number
            found = wait(*words, **more)
            self.waits[self.rank] = 0
            return found

        return told


@dataclass
class Work:
    """A collective operation under way."""

    wait: Callable[[], Any]


class Delayer:
    """Comes to places of a training, and delays some of them on one rank."""

    def __init__(self, clock: DelayClock, place: str, delays: Iterable[Delay]) -> None:
        self.clock, self.place = clock, place
        self.delays = {(each.step, each.backward): each for each in delays}
        self.step = 0
        self.passed, self.of_last_step = Counter[bool](), Counter[bool]()
        self.done: list[float] = []

    def begin_step(self, step: int) -> None:
        """A micro-batch of a step begins; 0 stands for evaluations."""
        if step == self.step:
            return
        if self.step:
            self.of_last_step = self.passed
        self.step, self.passed = step, Counter()

    def during(self, step: int, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which does what ``step`` stands for."""

        @wraps(function)
        def delayed(*words: Any, **more: Any) -> Any:
            self.begin_step(step)
            found = function(*words, **more)
            self.begin_step(0)
            return found

        return delayed

    def come_to(self, place: str) -> None:
        """The training is at ``place``."""
        if place != self.place or not self.step:
            return
        backward = torch._C._current_graph_task_id() >= 0  # there is one while autograd works
        delay = self.delays.get((self.step, backward))
        if delay is not None and self.passed[backward] == int(delay.at * self.of_last_step[backward]):
            self.clock.delay(delay.seconds)
            self.done.append(delay.seconds)
        self.passed[backward] += 1

    def before(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which begins at ``place``."""

        @wraps(function)
        def delayed(*words: Any, **more: Any) -> Any:
            self.come_to(place)
            return function(*words, **more)

        return delayed

    def after(self, place: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, which ends at ``place``."""

        @wraps(function)
        def delayed(*words: Any, **more: Any) -> Any:
            found = function(*words, **more)
            self.come_to(place)
            return found

        return delayed

    def recorded(self, peers: Peers, recorder: exposed.Recorder, kind: str) -> Peers:
        """As of ``exposed``; this rank may stand still in messages and before they are recorded."""
        if isinstance(peers, DelayedPeers) and isinstance(peers.peers, exposed.RecordedPeers):
            peers = peers.peers.peers  # as `exposed` does with those that are recorded already
        inner = DelayedPeers(peers, partial(self.after, f"in {kind}"))
        return DelayedPeers(exposed.recorded(inner, recorder, kind), first=partial(self.before, f"before {kind}"))


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``."""
    return function


class DelayedPeers:
    """Peers whose messages begin with ``first`` and are waited for with ``last``."""

    def __init__(self, peers: Peers, last: Callable[..., Any] = as_it_is, first: Callable[..., Any] = as_it_is) -> None:
        self.peers, self.rank, self.size, self.last, self.first = peers, peers.rank, peers.size, last, first

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As of ``Peers``."""
        waiting: Callable[[], None] = self.last(self.first(self.peers.start)(sends, receives))
        return waiting

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """As of ``Peers``."""
        found: Tensor = self.last(self.first(self.peers.all_reduce))(tensor)
        return found

    def stacked(self, local: Tensor) -> Tensor:
        """As of ``Peers``; in float64 the recorder itself exchanges times."""
        last = as_it_is if local.dtype == torch.float64 else self.last
        found: Tensor = last(self.first(self.peers.stacked))(local)
        return found


def install(delayer: Delayer) -> None:
    """Make the trainings of this process come to the places of ``delayer`` and take its clock for the time."""
    keep_time(delayer.clock)
    follow_steps(delayer)
    delay_messages(delayer)
    for owner, name, place in (
        (GradientReducer, "_launch_next", "before gradients"),
        (shard_messages.ShardMessages, "send", "before sharding"),
        (tensors, "summed_over_shards", "before norms"),
        (LossBuffer, "flush", "before losses"),
        (NoiseScale, "flush", "before noise_rows"),
        (BatchReader, "read", "in input"),
        (TrainingStep, "forward", "in forward"),
        (TrainingStep, "clip", "in optimizer"),
    ):
        put(owner, name, delayer.before(place, getattr(owner, name)))


def keep_time(clock: DelayClock) -> None:
    """Let phases and steps take their time from ``clock``, and count what is sent."""
    real_timer, real_times, real_start = run.PhaseTimer, setup.StepTimes, NodePeers.start
    put(run, "PhaseTimer", lambda start: real_timer(clock.now, 0.0))
    put(setup, "StepTimes", partial(real_times, clock=clock.now))
    put(NodePeers, "start", lambda peers, *words: clock.start(peers, real_start)(*words))
    for module, names in (
        (dist, ("all_reduce", "all_gather", "broadcast")),
        (shard_messages, ("_all_gather", "_reduce_scatter")),
    ):
        for name in names:
            put(module, name, clock.send(getattr(module, name)))


def follow_steps(delayer: Delayer) -> None:
    """Tell ``delayer`` of steps, evaluations, and what else makes passes."""
    real_accumulate = TrainingStep.accumulate

    def accumulate(training: Any, batch: Any, loader: Any, epoch: int, step: int, *words: Any, **more: Any) -> None:
        delayer.begin_step(step)
        real_accumulate(training, batch, loader, epoch, step, *words, **more)

    put(TrainingStep, "accumulate", accumulate)
    put(loop, "evaluate", delayer.during(0, loop.evaluate))
    put(run, "warm_up", delayer.during(WARM_UP, run.warm_up))
    put(finalize, "keep_examples", delayer.during(EXAMPLES, finalize.keep_examples))


def delay_messages(delayer: Delayer) -> None:
    """Let messages take longer, after ``keep_time``."""
    real_launch = _Bucket.launch

    def launch(bucket: _Bucket, *words: Any) -> None:
        real_launch(bucket, *words)
        if bucket.work is not None:
            bucket.work = Work(delayer.after("in gradients", bucket.work.wait))

    put(_Bucket, "launch", launch)
    for table, place in ((LossBuffer, "in losses"), (NoiseScale, "in noise_rows")):
        put(table, "__init__", with_delayed_sums(table.__init__, delayer, place))
    put(tensors, "dist", SimpleNamespace(all_reduce=delayer.after("in norms", dist.all_reduce)))
    for name in ("_all_gather", "_reduce_scatter"):
        put(shard_messages, name, delayer.after("in sharding", getattr(shard_messages, name)))
    for module in (mesh, batchnorm_group, noise_scale):
        put(module, "recorded", delayer.recorded)


def with_delayed_sums(make: Callable[..., None], delayer: Delayer, place: str) -> Callable[..., None]:
    """``__init__`` of something with a group of ranks, whose sums take longer at ``place``."""

    @wraps(make)
    def made(owner: Any, *words: Any, **more: Any) -> None:
        make(owner, *words, **more)
        group, owner.group = owner.group, copy(owner.group)
        put(owner.group, "all_reduce_sum", delayer.after(place, group.all_reduce_sum))

    return made


def put(owner: Any, name: str, value: Any) -> None:
    """``value`` in the place of an attribute."""
    setattr(owner, name, value)
