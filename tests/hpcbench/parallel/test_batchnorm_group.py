"""Batch norm over neighbouring ranks equals a plain one on their joined batch: outputs, gradients, statistics."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hpcbench.parallel.batchnorm_group import GroupBatchNorm, replace_batch_norm
from hpcbench.planning.counting import CountingPeers, Traffic
from tests.hpcbench.parallel.spawned import spawned
from tests.hpcbench.parallel.test_ranks import run_program

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAM = Path(__file__).with_name("programs") / "grouped.py"
KINDS = ("vectors", "images", "volumes")
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def rank_results() -> Found:
    """Four ranks in two groups."""
    return run_program(*spawned(4, PROGRAM))


@pytest.fixture(scope="module")
def parts() -> SimpleNamespace:
    """The models and the data of the program, without running it."""
    import runpy

    return SimpleNamespace(**runpy.run_path(str(PROGRAM), run_name="parts"))


def close(left: Any, right: Any) -> None:
    pair = (each if isinstance(each, Tensor) else torch.tensor(each, dtype=torch.float64) for each in (left, right))
    torch.testing.assert_close(*pair, rtol=1e-9, atol=1e-9, check_dtype=False)


def joined(parts: SimpleNamespace, kind: str, group: int) -> tuple[list[dict[str, Any]], list[list[float]]]:
    """Both steps of a group in one process, and the evaluation of each of its ranks."""
    model, x = parts.make_model(kind)
    ranks = (2 * group, 2 * group + 1)
    spans = [(step[ranks[0]][0], step[ranks[1]][1]) for step in parts.PARTS]
    steps = [parts.train_step(model, x, *span) for span in spans if span[0] < span[1]]
    with torch.no_grad():
        model.eval()
        return steps, [model(x[rank : rank + 1]).tolist() for rank in ranks]


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_computes_what_one_process_does(
    rank_results: Found, parts: SimpleNamespace, kind: str, group: int
) -> None:
    steps, evaluated = joined(parts, kind, group)
    assert len(steps) == 2 - group, "the second group has nothing in the second step"
    ranks = [rank[kind] for rank in rank_results[2 * group : 2 * group + 2]]
    for number, step in enumerate(steps):
        own = [rank["steps"][number] for rank in ranks]
        close([row for rank in own for row in rank["output"]], step["output"])
        close([row for rank in own for row in rank["input"]], step["input"])
        for name, gradient in step["parameters"].items():
            close(sum(torch.tensor(rank["parameters"][name], dtype=torch.float64) for rank in own), gradient)
        for rank in own:
            assert set(rank["buffers"]) == set(step["buffers"])
            for name, buffer in step["buffers"].items():
                close(rank["buffers"][name], buffer)
    for rank, expected in zip(ranks, evaluated, strict=True):
        close(rank["evaluated"], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_without_samples_keeps_its_statistics(rank_results: Found, kind: str) -> None:
    for rank in rank_results[2:]:
        first, second = rank[kind]["steps"]
        assert second["buffers"] == first["buffers"]
        assert second["output"] == []


def test_parameters_and_names_stay(rank_results: Found) -> None:
    assert all(rank[kind]["kept"] and rank[kind]["shares"] for rank in rank_results for kind in KINDS)


def test_a_bfloat16_batch_stays_one(rank_results: Found, parts: SimpleNamespace) -> None:
    x = parts.samples((3, 4, 5), offset=0).bfloat16()
    for number in (0, 1):
        pair = [rank["mixed"] for rank in rank_results[2 * number : 2 * number + 2]]
        layer = torch.nn.BatchNorm2d(3)
        output = layer(x[4 * number : 4 * number + 4].float())
        (2 * output.square().mean()).backward()
        assert all(rank["types"] == ["torch.bfloat16", "torch.bfloat16"] for rank in pair)
        together = torch.tensor([row for rank in pair for row in rank["output"]])
        torch.testing.assert_close(together, output.detach(), rtol=0, atol=2**-7)
        weight = sum(torch.tensor(rank["weight"]) for rank in pair)
        torch.testing.assert_close(weight, layer.weight.grad, rtol=1e-2, atol=0)


def test_a_layer_under_two_names_is_replaced_under_both() -> None:
    shared = nn.BatchNorm2d(2)
    model = nn.Sequential(nn.Conv2d(1, 2, 1), shared, nn.Conv2d(2, 2, 1), shared)
    replace_batch_norm(model, CountingPeers(0, 2, Traffic()))
    assert isinstance(model[1], GroupBatchNorm)
    assert model[3] is model[1]
    assert model[1].weight is shared.weight


class Alone(CountingPeers):
    """A group of one."""

    def stacked(self, local: Tensor) -> Tensor:
        return local[None]


def test_the_backward_kernel_gets_the_statistics_that_accelerators_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor computes them from others; CUDA's kernel fails with an internal assertion if they are missing."""
    called: list[tuple[Any, ...]] = []
    kernel = torch.ops.aten.native_batch_norm_backward

    def note(*arguments: Any) -> Any:
        called.append(arguments)
        return kernel(*arguments)

    monkeypatch.setattr(torch.ops.aten, "native_batch_norm_backward", note)
    x = torch.randn(6, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    GroupBatchNorm(nn.BatchNorm1d(3).double(), Alone(0, 1, Traffic()))(x).square().sum().backward()
    variance, mean = torch.var_mean(x.detach(), (0, 2), correction=0)
    close(called[0][5], mean)
    close(called[0][6], (variance + 1e-5).rsqrt())
