"""What the harness does for a task that does not say otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from hpcbench.parallel.precision import PrecisionPolicy
from hpcbench.train.task import Task


class Silent(Task):
    """A task that keeps two numbers of each sample and defines no metrics."""

    columns = ("error", "bias")

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output - target).square().mean()

    def score(self, output: Tensor, target: Tensor) -> Tensor:
        return torch.stack([(output - target).abs(), output - target], dim=1).double()


def test_metrics_are_the_means_of_the_columns() -> None:
    scores = Silent().score(torch.tensor([1.0, 2.0, 6.0]), torch.tensor([2.0, 2.0, 2.0]))
    assert Silent().metrics(scores) == pytest.approx({"error": 5 / 3, "bias": 1.0})


def test_fractions_reach_the_model_in_the_type_of_the_run_and_integers_as_they_are() -> None:
    policy = cast("Any", SimpleNamespace(dtype=torch.float64))
    assert PrecisionPolicy.as_input(policy, torch.ones(2, dtype=torch.float32)).dtype == torch.float64
    assert PrecisionPolicy.as_input(policy, torch.ones(2, dtype=torch.int64)).dtype == torch.int64
