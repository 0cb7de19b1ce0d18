"""Which nodes of a run were slower than the others, from what its ranks measured.

For each figure the nodes are tested by the generalized extreme Studentized deviate test (Rosner, "Percentage points for
a generalized ESD many-outlier procedure", Technometrics 25, 1983), from which neither one slow node nor many can hide.
Nodes are set aside one by one, the furthest from the mean first. Each is compared by Student's t with those that are
left, and all up to the last significant one are outliers. The level is Bonferroni's over nodes, sides and figures.

A few nodes do not show how far nodes scatter, so the variance of those that are left is moderated by what healthy nodes
usually have (``USUAL``; Smyth, "Linear models and empirical Bayes methods", Stat. Appl. Genet. Mol. Biol. 3, 2004).
Among hundreds of nodes heavy tails alone put some far out, so the tails are examined, too (``_tail_bounds``).

In simulations with all three figures measured: of jobs of fewer than 64 healthy nodes that scatter normally, at most
5 % name a node at a scatter of 1 to 2 %, and at most 8 % at 3 % (on 6 to 16 nodes). A job of 512 names 0.5 on average,
and 0.7 if its scatter of 1 % has the tails of Student's t with 4 degrees of freedom. A node that is 10 % slower in one
figure is found in 90 % of jobs of 4 nodes or more that scatter by 1 %, and of 8 or more that scatter by 1.5 %; in 67 %
on 3 nodes at 1 %; at 2 % in 83 % on 64 nodes, 89 % on 128, 90 % on 256 and 93 % on 512, and in over 95 % if it is
slower in all three figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FALSE_NODES = 1024
"""On average one healthy node in this many, beyond the first ``TAIL_NODES``, is named, if figures scatter normally.

It is at most half a node in all: from 537 nodes on the level is ``MOST_LEVEL``.
"""
SIDES = 2
"""The test looks for fast nodes, too, and only slow ones are named."""
LEAST_LEVEL, MOST_LEVEL = 0.05, 1.0
"""Nodes that a job of healthy ones sets aside on average, however few or many it has: half of them are slow."""
EXPECTED = 0.5
"""Healthy nodes that a job names on average if the tails are heavier than the normal's."""
LEAST = 0.05
"""A node is named only if it is at least this much slower than the median: deviations of quiet machines are tiny."""
LEAST_NODES = 3
USUAL, WEIGHT = 0.0175, 4
"""Scatter of healthy nodes, as a part of their figure (1 to 3 %), and the degrees of freedom that this counts for."""
MOST = 3
"""At most one node in this many is an outlier."""
TAIL_NODES = 50
"""With fewer nodes the tails cannot be determined."""
FREEDOMS = (math.inf, 40.0, 30.0, 20.0, 15.0, 12.0, 10.0, 8.0, 7.0, 6.0, 5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 2.0)
"""Degrees of freedom of Student's t that are tried for the tails; infinite is the normal."""
HEAVIER = 2.7
"""Twice the gain in log-likelihood from which tails count as heavy: a likelihood ratio test at 5 %, one-sided."""
FIGURES = {
    "compute_s": ("computes a step", 1),
    "gemm_flops": ("multiplies matrices", -1),
    "all_reduce_s": ("takes part in an all-reduce", 1),
}
"""Figures of a rank: what the rank does, in words, and whether more (1) or less (-1) of the figure is slow."""


def slow_nodes(ranks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for every node and figure that is slow, worst first; ``ranks`` are rows of ``ranks.csv``.

    A node's figure is the median over its ranks. It is slow if it is an outlier, is 5 % beyond the median of the nodes,
    and is beyond the bound that heavy tails set. With fewer than three nodes nobody can say which of them is slow.
    """
    by_figure = {
        name: {node: value**sign for node, value in by_node(ranks, name).items()} for name, (_, sign) in FIGURES.items()
    }
    tested = {name: nodes for name, nodes in by_figure.items() if len(nodes) >= LEAST_NODES}
    ratios = {name: np.array([*nodes.values()]) / median(nodes.values()) for name, nodes in tested.items()}
    if not any((node_ratios - 1 > LEAST).any() for node_ratios in ratios.values()):
        return []
    more = max(0, max(map(len, ratios.values())) - TAIL_NODES)
    level = min(LEAST_LEVEL + SIDES * more / FALSE_NODES, MOST_LEVEL)
    bounds = _tail_bounds([*ratios.values()])
    sentences: list[tuple[float, str]] = []
    for (name, nodes), bound in zip(tested.items(), bounds, strict=True):
        slow = outliers(ratios[name], level / len(tested)) & (ratios[name] - 1 > max(LEAST, bound))
        sentences += [
            (float(ratio), f"{node} {FIGURES[name][0]} {ratio:.2f} times as slowly as the median node")
            for node, ratio, named in zip(nodes, ratios[name], slow, strict=True)
            if named
        ]
    return [words for _, words in sorted(sentences, reverse=True)]


def outliers(ratios: Floats, level: float) -> npt.NDArray[np.bool_]:
    """Mark the outliers on both sides among ``ratios`` (n,), otherwise normal about 1: Rosner's test at ``level``.

    It compares the t statistic of a value against the others; Rosner's R_i is a function of this statistic.
    """
    from hpcbench import probability  # no rank needs SciPy before its run has ended

    order, most = np.argsort(ratios), len(ratios) // MOST
    left = len(ratios) - np.arange(most)
    quantiles = -probability.student_quantile(level / (2 * left), left - 2 + WEIGHT)
    low, high = 0, len(ratios)
    inliers = slice(low, high)
    for quantile in quantiles:
        values = ratios[order[low:high]]
        top = values[-1] - values.mean() >= values.mean() - values[0]
        furthest, others = (values[-1], values[:-1]) if top else (values[0], values[1:])
        low, high = (low, high - 1) if top else (low + 1, high)
        squares = float(np.sum((others - others.mean()) ** 2)) + WEIGHT * USUAL**2
        error = math.sqrt(squares / (len(others) - 1 + WEIGHT) * (1 + 1 / len(others)))
        if abs(furthest - others.mean()) > error * quantile:
            inliers = slice(low, high)
    is_outlier = np.ones(len(ratios), dtype=np.bool_)
    is_outlier[order[inliers]] = False
    return is_outlier


def _tail_bounds(figures: Sequence[Floats]) -> list[float]:
    """How far beyond the median, as a fraction of it, heavy tails take healthy nodes; per figure, 0 if they do not.

    The nodes faster than the median include no slow ones, and healthy nodes are assumed to scatter alike on both sides.
    Student's t is fitted to the faster nodes of all figures by maximum likelihood, with its scale in each figure set by
    their median. ``EXPECTED`` healthy nodes in a job pass the bound. There is none with fewer than ``TAIL_NODES``
    nodes, or if the fit is not better than the normal's by more than chance.
    """
    from hpcbench import probability

    freedoms = np.array(FREEDOMS)
    quartile = probability.student_quantile(0.75, freedoms)
    likelihood, middles = np.zeros(len(freedoms)), []
    for values in figures:
        fast = 1 - values[values < 1]
        enough = len(values) >= TAIL_NODES and len(fast) >= TAIL_NODES // 4
        middles.append(float(np.median(fast)) if enough else 0.0)
        if enough:
            scale = middles[-1] / quartile
            densities = probability.student_log_density(fast[:, None] / scale, freedoms)
            likelihood += np.sum(densities - np.log(scale), axis=0)
    best = int(np.argmax(likelihood))
    if 2 * (likelihood[best] - likelihood[0]) < HEAVIER:
        return [0.0] * len(figures)
    chance = EXPECTED / sum(map(len, figures))
    reach = -probability.student_quantile(chance, freedoms[best]) / quartile[best]
    return [float(middle * reach) for middle in middles]


def by_node(ranks: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    """Return each node's median over the ranks that know the figure; a sum over steps counts per step."""
    values_by_node: dict[str, list[float]] = {}
    for rank in ranks:
        value = rank.get(name)
        if name == "compute_s" and value is not None:
            value = value / rank["steps"] if rank["steps"] else None
        if value is not None and value > 0:  # in a table read from a file, an unset value is NaN
            values_by_node.setdefault(str(rank["node"]), []).append(float(value))
    return {node: median(values) for node, values in values_by_node.items()}
