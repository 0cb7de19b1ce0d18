"""Which nodes of a run were slower than the others, from what its ranks measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

DEVIATIONS = 3.0
"""Median absolute deviations from the median of the nodes, beyond which a node is called slow."""
LEAST = 0.05
"""So much slower than the median a node is at least that is named: deviations of quiet machines are tiny."""
FIGURES = {
    "compute_s": ("computes a step", 1),
    "gemm_flops": ("multiplies matrices", -1),
    "all_reduce_s": ("takes part in an all-reduce", 1),
}
"""Figures of a rank: what it does in words, and whether more (1) or less (-1) of it is slow."""


def slow_nodes(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for every node and figure that is beyond the bound, worst first; ``ranks`` are rows of ``ranks.csv``.

    A node's figure is the median over its ranks. Below three nodes nobody can say which of them is slow.
    """
    found: list[tuple[float, str]] = []
    for name, (words, sign) in FIGURES.items():
        nodes = {node: value**sign for node, value in by_node(ranks, name).items()}
        if len(nodes) < 3:
            continue
        middle = median(nodes.values())
        bound = max(DEVIATIONS * median(abs(value - middle) for value in nodes.values()), LEAST * middle)
        found += [
            (value / middle, f"{node} {words} {value / middle:.2f} times as slowly as the median node")
            for node, value in nodes.items()
            if value - middle > bound
        ]
    return [words for _, words in sorted(found, reverse=True)]


def by_node(ranks: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    """The median over the ranks of each node that know the figure; a sum over steps counts per step."""
    found: dict[str, list[float]] = {}
    for rank in ranks:
        value = rank.get(name)
        if name == "compute_s" and value is not None:
            value = value / rank["steps"] if rank["steps"] else None
        if value is not None and value > 0:  # in a table that was read, what is unset is not a number
            found.setdefault(str(rank["node"]), []).append(float(value))
    return {node: median(values) for node, values in found.items()}
