"""Slow nodes: named if one is beyond the bound, with how much; never among equals, nor among two."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpcbench.measure.slow_nodes import DEVIATIONS, FIGURES, LEAST, slow_nodes
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


def named(found: list[str]) -> list[tuple[str, float]]:
    """Nodes and factors that the sentences name."""
    return [(line.split(" ", 1)[0], float(re.findall(r" ([\d.]+) times", line)[0])) for line in found]


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


@given(st.lists(st.floats(1.0, 2.0), min_size=3, max_size=9), st.sampled_from(["compute_s", "all_reduce_s"]))
def test_the_bound_is_three_deviations_and_five_percent(slownesses: list[float], name: str) -> None:
    """Median absolute deviations from the median."""
    middle = median(slownesses)
    bound = max(DEVIATIONS * median(abs(each - middle) for each in slownesses), LEAST * middle)
    assume(all(abs(each - middle - bound) > 1e-9 for each in slownesses))  # rounding decides these
    expected = {f"n{node}" for node, each in enumerate(slownesses) if each - middle > bound}
    assert {node for node, _ in named(slow_nodes(only(name, slownesses)))} == expected
    assert (DEVIATIONS, LEAST) == (3.0, 0.05)


@pytest.mark.parametrize(
    ("slownesses", "found"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.04], []),
        ([1.0, 1.0, 1.0, 1.0, 1.06], [("n4", 1.06)]),
        # The deviation is 0.2, so that 1.6 times the median is within.
        ([0.8, 0.8, 1.0, 1.2, 1.59], []),
        ([0.8, 0.8, 1.0, 1.2, 1.61], [("n4", 1.61)]),
        ([1.0, 1.0, 1.0, 0.3, 0.3], []),
    ],
)
def test_just_within_and_just_beyond(slownesses: list[float], found: list[tuple[str, float]]) -> None:
    assert named(slow_nodes(only("compute_s", slownesses))) == found


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
