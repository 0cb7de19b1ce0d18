"""Slow nodes: named with how much, at the rates that the module states; never among equals, nor among two."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpcbench.measure.slow_nodes import FALSE_NODES, FIGURES, USUAL, WEIGHT, outliers, slow_nodes
from hpcbench.results.run_folder import RunFolder

STEPS = 40
FAST = {"compute_s": 0.25, "gemm_flops": 1e11, "all_reduce_s": 0.004}
"""Figures of a usual rank; the compute time is that of a step."""
positive = st.floats(1e-3, 1e3)


def rank(node: str, slowness: float = 1.0, steps: int = STEPS, **figures: float | None) -> dict[str, Any]:
    """A rank of a node that is so many times as slow in all that is measured."""
    usual = {
        "compute_s": FAST["compute_s"] * slowness * steps,
        "gemm_flops": FAST["gemm_flops"] / slowness,
        "all_reduce_s": FAST["all_reduce_s"] * slowness,
    }
    return {"node": node, "steps": steps, **usual, **figures}


def only(name: str, slownesses: list[float], ranks_per_node: int = 1) -> list[dict[str, Any]]:
    """Ranks of nodes n0, n1, ... that differ in one figure."""
    made = [rank(f"n{node}", slowness) for node, slowness in enumerate(slownesses) for _ in range(ranks_per_node)]
    usual = rank("")
    return [{**usual, "node": each["node"], name: each[name]} for each in made]


def named(sentences: list[str]) -> list[tuple[str, float]]:
    """Nodes and factors that the sentences name."""
    return [(line.split(" ", 1)[0], float(re.findall(r" ([\d.]+) times", line)[0])) for line in sentences]


@given(st.integers(1, 12), st.integers(1, 4), positive, st.sampled_from([*FIGURES]))
def test_equal_nodes_are_never_named(nodes: int, ranks: int, slowness: float, name: str) -> None:
    assert slow_nodes(only(name, [slowness] * nodes, ranks)) == []


@given(st.integers(3, 12), st.data(), positive, st.sampled_from([*FIGURES]))
def test_one_of_three_or_more_that_takes_twice_as_long_is_named_with_its_factor(
    nodes: int, data: st.DataObject, slowness: float, name: str
) -> None:
    slow = data.draw(st.integers(0, nodes - 1))
    found = slow_nodes(only(name, [slowness * (2 if node == slow else 1) for node in range(nodes)], 2))
    assert found == [f"n{slow} {FIGURES[name][0]} 2.00 times as slowly as the median node"]


@given(positive, positive, st.integers(1, 4), st.sampled_from([*FIGURES]))
def test_of_two_nodes_nobody_can_say(one: float, other: float, ranks: int, name: str) -> None:
    assert slow_nodes(only(name, [one, other], ranks)) == []


@pytest.mark.parametrize(
    ("slownesses", "expected"),
    [
        ([1.0] * 12 + [1.04], []),
        ([1.0] * 12 + [1.06], [("n12", 1.06)]),
        # Among nodes that scatter by 17 %, a node must be much slower.
        ([0.8, 0.8, 0.9, 1.0, 1.0, 1.1, 1.2, 1.2, 1.5], []),
        ([0.8, 0.8, 0.9, 1.0, 1.0, 1.1, 1.2, 1.2, 3.0], [("n8", 3.0)]),
        ([1.0, 1.0, 1.0, 1.0, 0.3, 0.3], []),
    ],
)
def test_just_within_and_just_beyond(slownesses: list[float], expected: list[tuple[str, float]]) -> None:
    assert named(slow_nodes(only("compute_s", slownesses))) == expected


def test_the_outlier_test_is_that_of_a_regression_with_a_column_for_the_outlier() -> None:
    """Of a single suspect: its t statistic against the others, with the usual scatter's squares added to theirs."""
    others = np.array([0.98, 1.0, 1.01, 1.02])
    squares = np.sum((others - others.mean()) ** 2) + WEIGHT * USUAL**2
    error = np.sqrt(squares / (3 + WEIGHT) * (1 + 1 / 4))
    bound = others.mean() + error * stats.t.isf(0.05 / (2 * 5), 3 + WEIGHT)
    for value, found in ((bound - 1e-9, False), (bound + 1e-9, True)):
        assert outliers(np.array([*others, value]), 0.05).tolist() == [False] * 4 + [found]


def test_a_third_of_the_nodes_cannot_hide_behind_each_other() -> None:
    rng = np.random.default_rng(21)
    slownesses = rng.normal(1, 0.01, 24) * np.repeat([1.0, 1.1], [16, 8])
    found = {node for node, _ in named(slow_nodes(only("compute_s", slownesses.tolist())))}
    assert found == {f"n{node}" for node in range(16, 24)}


def test_a_node_that_is_much_faster_hides_no_slow_one() -> None:
    slownesses = np.random.default_rng(22).normal(1, 0.01, 16)
    slownesses[[3, 7]] = 0.5, 1.12
    assert [node for node, _ in named(slow_nodes(only("gemm_flops", slownesses.tolist())))] == ["n7"]


def measured(deviations: np.ndarray) -> list[dict[str, Any]]:
    """Ranks, one a node, whose figures deviate by (3, nodes) as parts of the usual."""
    compute, product, reduction = 1 + deviations
    return [
        rank(f"n{node}", 1.0, compute_s=FAST["compute_s"] * STEPS * compute[node],
             gemm_flops=FAST["gemm_flops"] / product[node], all_reduce_s=FAST["all_reduce_s"] * reduction[node])
        for node in range(deviations.shape[1])
    ]  # fmt: skip


def healthy(rng: np.random.Generator, nodes: int, scatter: float, freedom: float) -> np.ndarray:
    """Deviations (3, nodes) with a standard deviation, normal or with the tails of Student's t."""
    return scatter * rng.standard_t(freedom, (3, nodes)) * np.sqrt(1 - 2 / freedom)


def called(jobs: int, nodes: int, scatter: float, freedom: float = 1e9) -> tuple[float, float]:
    """Healthy nodes that a job names on average, and how often it finds one that computes 10 % slower."""
    rng, wrong, hits = np.random.default_rng(nodes), 0, 0
    for _ in range(jobs):
        deviations = healthy(rng, nodes, scatter, freedom)
        wrong += len({node for node, _ in named(slow_nodes(measured(deviations)))})
        deviations[0, 0] = 1.1 * (1 + deviations[0, 0]) - 1
        hits += "n0" in {node for node, _ in named(slow_nodes(measured(deviations)))}
    return wrong / jobs, hits / jobs


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "scatter"), [(4, 0.01), (6, 0.01), (16, 0.015), (64, 0.015)])
def test_healthy_nodes_are_rarely_named_and_slow_ones_mostly(nodes: int, scatter: float) -> None:
    wrong, found = called(250, nodes, scatter)
    assert wrong <= 0.05
    assert found >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("scatter", "freedom", "bound"), [(0.01, 1e9, 0.05), (0.015, 1e9, 1.0), (0.01, 4, 1.0)])
def test_less_than_one_of_512_healthy_nodes_is_named(scatter: float, freedom: float, bound: float) -> None:
    wrong, found = called(40, 512, scatter, freedom)
    assert wrong <= bound
    assert found >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "named_ones", "least"), [(64, 0.04, 0.8), (128, 0.1, 0.86), (512, 0.48, 0.9)])
def test_many_nodes_that_scatter_by_2_percent(nodes: int, named_ones: float, least: float) -> None:
    wrong, found = called(600 if nodes < 500 else 300, nodes, 0.02)
    assert wrong == pytest.approx(named_ones, abs=max(0.03, named_ones / 4))
    assert found >= least


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [3, 4, 8, 16, 64, 512])
@pytest.mark.parametrize(("scatter", "level"), [(0.01, 0.05), (0.02, 0.05), (0.03, 0.08)])
def test_the_level_holds_for_any_number_of_nodes(nodes: int, scatter: float, level: float) -> None:
    jobs = 1000 if nodes < 100 else 200
    level = max(level, nodes / FALSE_NODES)
    assert called(jobs, nodes, scatter)[0] <= level + 3 * np.sqrt(level / jobs)


def test_worst_first_over_all_figures() -> None:
    ranks = [rank("a"), rank("b"), rank("c"), rank("d", gemm_flops=FAST["gemm_flops"] / 3)]
    ranks.append(rank("e", compute_s=1.5 * FAST["compute_s"] * STEPS, all_reduce_s=4 * FAST["all_reduce_s"]))
    assert slow_nodes(ranks) == [
        "e takes part in an all-reduce 4.00 times as slowly as the median node",
        "d multiplies matrices 3.00 times as slowly as the median node",
        "e computes a step 1.50 times as slowly as the median node",
    ]


def test_a_node_is_the_median_of_its_ranks() -> None:
    """One slow rank of three is not a slow node."""
    others = [rank(node) for node in "abc" for _ in range(3)]
    assert slow_nodes([*others, rank("d"), rank("d"), rank("d", 9.0)]) == []
    assert {node for node, _ in named(slow_nodes([*others, rank("d"), rank("d", 9.0), rank("d", 9.0)]))} == {"d"}


def test_more_steps_are_not_slower() -> None:
    ranks = [rank("a"), rank("b"), rank("c", steps=10 * STEPS)]
    assert slow_nodes(ranks) == []


def test_what_was_not_measured_names_nobody() -> None:
    nothing: dict[str, Any] = {"gemm_flops": None, "all_reduce_s": None}
    assert slow_nodes([rank(node, steps=0, compute_s=None, **nothing) for node in "abcd"]) == []
    # Two nodes are left that know the figure.
    ranks = [rank("a", **nothing), rank("b", **nothing), rank("c"), rank("d", gemm_flops=1.0)]
    assert slow_nodes(ranks) == []
    assert slow_nodes([]) == []


def test_a_table_that_was_written_and_read_says_the_same(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    # Of one figure nothing is known, of another too little.
    ranks = [rank("a", gemm_flops=None), rank("b"), rank("c", 2.0)]
    ranks = [{**each, "all_reduce_s": None} for each in ranks]
    folder.write_ranks(ranks)
    read = [dict(record) for record in folder.read_ranks().to_dict("records")]
    assert slow_nodes(read) == slow_nodes(ranks) == ["c computes a step 2.00 times as slowly as the median node"]
