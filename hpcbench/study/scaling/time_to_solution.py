"""Time and cost to solution: the throughput of a scaling study times the epochs of a convergence study.

The study measures steps and not whole trainings, whose epochs depend on the batch alone (``hpcbench.study.fit``). One
training takes epochs(B) passes over the training set until it meets the target, half of the epochs between two
evaluations until it ends at one of them (``EpochFit.delay``), and staging and start as measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpcbench.study.fit import EpochFit
from hpcbench.study.scaling.point_results import PointResult, instance_rate
from hpcbench.study.scaling.weighted_line import CONFIDENCE, Interval

HOUR_S = 3600.0
NOWHERE: Interval = (math.nan, math.nan)


@dataclass(frozen=True)
class Solution:
    """One training to the target, on one size. If several instances train at the same time (throughput mode), times
    are those of one and of all, and hours are those of one: what a trained model costs."""

    nodes: int
    """Nodes of all instances."""
    instances: int
    global_batch_size: int
    epochs: float
    """Mean epochs to the evaluation that ends the training."""
    epochs_interval: Interval
    """95 % interval of that; like the other intervals, not-a-number if the study has none."""
    time_s: float
    time_interval: Interval
    """95 % interval, of the epochs and of the repeats together; not-a-number for a single repeat."""
    node_hours: float
    node_hours_interval: Interval
    core_hours: float | None
    """Unset if the site does not say how many cores a node has; likewise for GPUs."""
    gpu_hours: float | None
    extrapolated: bool
    """Whether the batch is outside the range of those at which runs reached the target, to which epochs were fitted."""


def solutions(
    rows: Sequence[PointResult], fit: EpochFit, train_samples: int, evaluations_per_epoch: float = 0.0
) -> list[Solution]:
    """What a training takes on each size of one variant that has figures, smallest first.

    ``train_samples`` are those of an epoch. Evaluations count if their number is given, checkpoints never. The list is
    empty for a fit without numbers (too few batches).
    """
    if math.isnan(fit.e_min):
        return []
    done = sorted((row for row in rows if row.runs), key=lambda row: row.nodes)
    return [_solution(row, fit, train_samples, evaluations_per_epoch) for row in done]


def cheapest(candidates: Sequence[Solution]) -> Solution:
    """The solution with the fewest node-hours, among equals the fastest. ``candidates`` has at least one."""
    return min(candidates, key=lambda solution: (solution.node_hours, solution.time_s))


def fastest(candidates: Sequence[Solution]) -> Solution:
    """The solution with the least time, among equals the cheapest. ``candidates`` has at least one."""
    return min(candidates, key=lambda solution: (solution.time_s, solution.node_hours))


def run_s(row: PointResult, samples: float, evaluations: float = 0.0) -> float:
    """Seconds of a run of ``samples`` by one instance, including staging and start: medians over the row's repeats."""
    besides = sum(row.middle(name) or 0.0 for name in ("staging_s", "init_s"))
    return samples / instance_rate(row) + evaluations * (row.middle("evaluation_s") or 0.0) + besides


def node_hours(row: PointResult, seconds: float) -> float:
    """Node-hours that ``seconds`` of the row's nodes cost, per instance."""
    return row.nodes * seconds / HOUR_S / row.instances


def _solution(row: PointResult, fit: EpochFit, train_samples: int, evaluations_per_epoch: float) -> Solution:
    batch, reached = row.runs[0].global_batch_size, [run.batch_size for run in fit.runs if run.reached]
    low, high = (float(end) + fit.delay for end in fit.band(batch))
    epochs = float(fit.predict(batch)) + fit.delay

    def seconds(number: float, of: PointResult) -> float:
        return run_s(of, number * train_samples, number * evaluations_per_epoch)

    time_s = seconds(epochs, row)
    repeats = [seconds(epochs, replace(row, runs=[run])) for run in row.runs]
    ends = _time_interval(time_s, (seconds(low, row), seconds(high, row)), repeats)
    cost = node_hours(row, time_s)
    return Solution(
        nodes=row.nodes, instances=row.instances, global_batch_size=batch, epochs=epochs, epochs_interval=(low, high),
        time_s=time_s, time_interval=ends, node_hours=cost,
        node_hours_interval=(node_hours(row, ends[0]), node_hours(row, ends[1])),
        core_hours=cost * row.cores_per_node or None, gpu_hours=cost * row.gpus_per_node or None,
        extrapolated=not min(reached) <= batch <= max(reached),
    )  # fmt: skip


def _time_interval(time_s: float, of_epochs: Interval, repeats: Sequence[float]) -> Interval:
    """The 95 % interval of a time from its ends by the epochs, at the same throughput, and the time of every repeat.

    The logarithms of epochs and throughput are independent, so that the squares of their half-widths add up (Zou and
    Donner, Statistics in Medicine 27, 2008); that of the repeats is Student's, about their geometric mean.
    ``tests/hpcbench/study/scaling/test_time_to_solution.py`` simulates how often the interval holds.
    """
    if len(repeats) < 2 or math.isnan(of_epochs[0]):
        return NOWHERE
    from hpcbench.probability import student_quantile  # a status needs no SciPy

    logs = np.log(repeats)
    away = float(student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1)) * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    with np.errstate(divide="ignore"):
        below, above = np.hypot(np.abs(np.log(np.divide(of_epochs, time_s))), away)
    middle = float(logs.mean())
    return min(time_s, float(np.exp(middle - below))), max(time_s, float(np.exp(middle + above)))
