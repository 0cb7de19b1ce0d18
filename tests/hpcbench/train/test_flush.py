"""The loop's look at its steps on accelerators: where their time went, with another rank that is late."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor, nn

from hpcbench.exits import Aborted
from hpcbench.measure.communication import Communication
from hpcbench.measure.phases import Phases
from hpcbench.parallel import stop_vote
from hpcbench.parallel.exposed import recorded
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.train.noise_scale import NoiseScale
from hpcbench.train.observers import Row, StepInfo, StepObserver
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import Launch
from tests.hpcbench.measure.test_communication import OneClock
from tests.hpcbench.measure.test_phases import LAUNCH_S, Machine, machine  # noqa: F401
from tests.hpcbench.train.fake_ranks import COMPUTE_S, OPTIMIZER_S, TRANSFER_S, FakeVotes, FastRank

STEPS = 50


@pytest.fixture(autouse=True)
def votes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> FakeVotes:  # noqa: F811
    votes = FakeVotes(machine)
    monkeypatch.setattr(stop_vote, "dist", votes)
    return votes


def figures(rank: FastRank) -> dict[str, float]:
    """Seconds by phase, which must add up."""
    found = rank.phases.timer.summary()
    wall = found.pop("wall")
    assert wall == pytest.approx(rank.machine.now)
    assert sum(found.values()) == pytest.approx(wall, rel=1e-12)
    return found


def test_messages_of_a_device_are_told_apart_at_every_flush(machine: Machine) -> None:  # noqa: F811
    rank = FastRank(machine, late_s=0.0)
    for _ in range(3):
        for _ in range(STEPS):
            rank.step()
        rank.trainer.flush()
    found = figures(rank)
    assert len(rank.trainer.state.epoch_losses) == 3 * STEPS
    assert found["compute"] == pytest.approx(3 * STEPS * COMPUTE_S, rel=0.05)
    assert found["communication"] == pytest.approx(3 * STEPS * TRANSFER_S, rel=0.1, abs=3 * STEPS * LAUNCH_S)
    assert found["optimizer"] == pytest.approx(3 * STEPS * OPTIMIZER_S, rel=0.25)
    transfer = rank.communication.transfer_s
    assert transfer["gradients"] + transfer["losses"] == pytest.approx(found["communication"], rel=1e-9)


def test_a_flush_without_steps_has_nothing_to_wait_for(machine: Machine) -> None:  # noqa: F811
    rank = FastRank(machine, late_s=0.0)
    rank.step()
    rank.trainer.flush()
    rank.trainer.flush()
    assert machine.waits == 1


def test_steps_before_a_loss_that_is_not_finite_have_their_messages(machine: Machine) -> None:  # noqa: F811
    rank = FastRank(machine, late_s=0.0)
    for loss in (1.0, 1.0, float("nan")):
        rank.step(loss)
    with pytest.raises(Aborted, match="the loss is nan at step 3"):
        rank.trainer.flush()
    gradients = rank.communication.transfer_s["gradients"] + rank.communication.waiting_s["gradients"]
    assert gradients == pytest.approx(3 * TRANSFER_S, rel=0.1, abs=3 * LAUNCH_S)
    figures(rank)


class Counted(StepObserver):
    """Has a row of its table in each flush."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.flushes: list[Mapping[str, Sequence[Row]]] = []

    def flush(self, epoch: int) -> list[Row]:
        return [{"step": 1}]

    def flushed(self, tables: Mapping[str, Sequence[Row]]) -> None:
        self.flushes.append(tables)


@pytest.mark.parametrize(("losses", "steps"), [((0.5, 2.0, math.nan, 3.0), [1, 2]), ((math.inf,), [])])
def test_rows_up_to_a_loss_that_is_not_finite_are_written(
    losses: tuple[float, ...],
    steps: list[int],
    machine: Machine,  # noqa: F811
) -> None:
    """They show how the training diverged; so do those of other tables."""
    rank = FastRank(machine, late_s=0.0)
    written: dict[str, Sequence[Row]] = {}
    before, after = Counted("before.csv"), Counted("after.csv")
    trainer = rank.make_trainer([before, rank.losses, after])
    run: Any = trainer.run
    run.is_first, run.folder = True, SimpleNamespace(append_rows=written.__setitem__)
    for loss in losses:
        rank.step(loss)
    trainer.state.step = len(losses)
    with pytest.raises(Aborted, match=f"the loss is {losses[len(steps)]} at step {len(steps) + 1}; lower --optim.lr"):
        trainer.flush()
    assert [row["step"] for row in written.pop("steps.csv", [])] == steps
    assert written == {"before.csv": [{"step": 1}], "after.csv": [{"step": 1}]}
    assert [[row["step"] for row in each.get("steps.csv", [])] for each in after.flushes] == [steps]


@pytest.mark.parametrize(("late_s", "compute_s"), [(0.16, 0.005), (0.17, 0.08), (0.5, 0.08), (0.05, 0.08)])
def test_a_rank_whose_host_is_late_is_waited_for(
    late_s: float,
    compute_s: float,
    machine: Machine,  # noqa: F811
    votes: FakeVotes,
) -> None:
    """The vote of each step holds the host back; what its device computes meanwhile is not waiting."""
    rank = FastRank(machine, late_s, compute_s)
    votes.other = rank.other
    for _ in range(3):
        for _ in range(STEPS):
            rank.step()
            rank.trainer.stop_if_asked()
        rank.trainer.flush()
    found, steps = figures(rank), 3 * STEPS
    work_s = compute_s + TRANSFER_S + OPTIMIZER_S
    late_by = max(0.0, late_s + 3 * LAUNCH_S - work_s)
    assert machine.now == pytest.approx(steps * (work_s + late_by), rel=0.05)
    error = 0.05 * machine.now
    assert found["waiting"] == pytest.approx(steps * late_by, abs=error)
    assert found["compute"] == pytest.approx(steps * compute_s, abs=error)
    assert found["communication"] == pytest.approx(steps * TRANSFER_S, abs=error)
    assert found["other"] == pytest.approx(0.0, abs=0.01 * error)


@pytest.mark.parametrize(("most", "other_is_full"), [(20, False), (1000, True)])
def test_messages_are_told_apart_before_they_are_too_many(
    most: int,
    other_is_full: bool,
    machine: Machine,  # noqa: F811
    votes: FakeVotes,
) -> None:
    """A rank that has noted 11 of 20 says so in its vote, which all count in the next step."""
    rank = FastRank(machine, late_s=0.2, most=most)
    votes.other = rank.other
    flushed = []
    for number in range(1, 31):
        rank.step()
        votes.other_vote = int(other_is_full and number in (11, 23))
        rank.trainer.vote_on_step()
        if not rank.losses.pending:
            flushed.append(number)
    rank.trainer.flush()
    assert flushed == [12, 24]
    assert rank.communication.unsplit == 0
    # All that is not work; a flush empties the queues of both devices, which adds to it.
    late_s = machine.now - 30 * (COMPUTE_S + TRANSFER_S + OPTIMIZER_S)
    assert figures(rank)["waiting"] == pytest.approx(late_s, rel=0.05)


class HostPeers:
    """Ranks that share samples, whose sums take the host so long."""

    rank, size = 0, 2

    def __init__(self, machine: Machine, sum_s: float) -> None:  # noqa: F811
        self.machine, self.sum_s = machine, sum_s

    def all_reduce(self, tensor: Tensor) -> Tensor:
        self.machine.now += self.sum_s
        return tensor.mul_(2)

    def stacked(self, local: Tensor) -> Tensor:
        return local.unsqueeze(0)

    def start(self, *_: object) -> NoReturn:
        raise NotImplementedError


def measured_step(scale: NoiseScale, model: nn.Linear) -> None:
    """A step of two parts of one sample."""
    for _ in range(2):
        scale.before_backward(1)
        (0.5 * model(torch.ones(1, 4)).sum()).backward()
        scale.after_backward(1, 0.5)
    scale.before_update(StepInfo(1, 2, 2, 0.1))


def test_a_late_rank_is_waited_for_where_the_noise_scale_is_summed(machine: Machine) -> None:  # noqa: F811
    """It is what a flush sends first."""
    rank, model = FastRank(machine, late_s=0.0), nn.Linear(4, 1)
    scale = NoiseScale(model.parameters(), rank.group, every=1, recorder=rank.communication)
    trainer = rank.make_trainer([scale, rank.losses])
    rank.step()
    measured_step(scale, model)
    rank.other.ready += 2.0
    trainer.flush()
    assert rank.communication.waiting_s["noise_scale"] == pytest.approx(2.0, abs=3 * LAUNCH_S)
    assert figures(rank)["other"] == pytest.approx(0.0, abs=1e-9)


def test_sums_for_the_noise_scale_are_no_halos(machine: Machine) -> None:  # noqa: F811
    phases = Phases(PhaseTimer(clock=lambda: machine.now), torch.device("cpu"))
    communication, model = Communication(phases, OneClock()), nn.Linear(4, 1)
    mesh = Mesh(MeshShape(1, (2,)), 0, {2: recorded(HostPeers(machine, 0.5), communication, "halo")})
    alone = Group(Launch(), torch.device("cpu"), None)
    scale = NoiseScale(model.parameters(), alone, every=1, mesh=mesh, recorder=communication)
    with phases.phase("compute"):
        measured_step(scale, model)
    communication.settle()
    assert (communication.transfer_s["halo"], communication.transfer_s["noise_scale"]) == (0.0, 1.0)
    assert phases.timer.totals()["communication"] == 1.0
