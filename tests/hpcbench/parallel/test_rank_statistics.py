"""Batch-norm statistics of simulated ranks: each has its own, in buffers that stay in place."""

from __future__ import annotations

import torch
from torch import nn

from hpcbench.parallel.batchnorm import RankStatistics, running_statistics
from hpcbench.parallel.group import connect
from staging.ranks.launch import Launch

RANKS = 3


def make_model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.BatchNorm1d(4, momentum=None)).double()


def batch(rank: int, step: int) -> torch.Tensor:
    return torch.linspace(rank, step + 2, 10, dtype=torch.float64).sin().view(5, 2) * (rank + 1)


def train_in_turn(statistics: RankStatistics, model: nn.Module, steps: range) -> None:
    for step in steps:
        for rank in range(RANKS):
            # The last rank has nothing in the last step, so counts differ.
            if (rank, step) != (2, 2):
                statistics.use(rank)
                model(batch(rank, step))


def alone() -> list[dict[str, torch.Tensor]]:
    """The buffers of each rank where each has a model of its own."""
    models = [make_model() for _ in range(RANKS)]
    for step in range(3):
        for rank, model in enumerate(models):
            if (rank, step) != (2, 2):
                model(batch(rank, step))
    return [dict(model.named_buffers()) for model in models]


def test_each_rank_has_the_statistics_of_its_own_batches() -> None:
    model = make_model()
    places = [buffer.data_ptr() for buffer in model.buffers()]
    statistics = RankStatistics(model, RANKS)
    train_in_turn(statistics, model, range(3))
    for rank, expected in enumerate(alone()):
        statistics.use(rank)
        assert all(torch.equal(buffer, expected[name]) for name, buffer in model.named_buffers())
    assert [buffer.data_ptr() for buffer in model.buffers()] == places


def test_the_average_is_over_ranks_and_all_go_on_from_it() -> None:
    model = make_model()
    statistics = RankStatistics(model, RANKS)
    train_in_turn(statistics, model, range(3))
    statistics.average(model, connect(Launch()))
    expected = alone()
    for rank in range(RANKS):
        statistics.use(rank)
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point():
                torch.testing.assert_close(buffer, torch.stack([each[name] for each in expected]).mean(0))
            else:
                assert torch.equal(buffer, expected[rank][name]), "batches are counted for each rank"


def test_what_was_saved_goes_on_as_if_nothing_was() -> None:
    one, other = make_model(), make_model()
    whole, parts = RankStatistics(one, RANKS), RankStatistics(other, RANKS)
    train_in_turn(whole, one, range(3))
    train_in_turn(parts, other, range(1))
    saved = [[tensor.clone() for tensor in each] for each in parts.state()]
    resumed = make_model()
    again = RankStatistics(resumed, RANKS)
    again.load(saved)
    train_in_turn(again, resumed, range(1, 3))
    for expected, found in zip(whole.state(), again.state(), strict=True):
        assert all(torch.equal(*pair) for pair in zip(expected, found, strict=True))


def test_a_model_without_batch_norm_has_none() -> None:
    model = nn.Linear(2, 2)
    statistics = RankStatistics(model, RANKS)
    statistics.use(2)
    statistics.average(model, connect(Launch()))
    assert statistics.state() == [[], [], []]
    assert running_statistics(model) == []
