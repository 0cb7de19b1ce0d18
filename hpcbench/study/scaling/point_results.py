"""The figures of a scaling study: the result of one repeat of a point, and the row of a point with its repeats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from hpcbench.phase_names import STEP_PARTS
from hpcbench.study.scaling.concurrency import InstanceClock, Pruned
from hpcbench.study.scaling.rate_ratio import rate_ratio

Mode = Literal["strong", "weak", "throughput"]
TO_TARGET = ("time_s", "samples_per_model")
"""Figures of ``RepeatResult`` that a repeat has only if it reached the target."""
LEVEL = 0.05
"""Variants differ where the p-value of no difference is at most this."""


@dataclass(frozen=True)
class RepeatResult:
    """One repeat of a point, over all its instances that ran at the same time.

    No figure of a step includes steps of the warm-up.
    """

    ranks: int
    """Ranks of these instances."""
    global_batch_size: int
    """Global batch of one instance."""
    samples_per_s: float
    """Training samples of all instances, over the steps after the warm-up."""
    step_s: Mapping[str, float]
    """Seconds of an optimizer step by ``STEP_PARTS``, the mean over ranks, so that they add up to its wall time."""
    step_median_s: Mapping[str, float] = field(default_factory=dict)
    """The same and the ``wall`` time of a step, each as the median over ranks."""
    step_slowest_s: Mapping[str, float] = field(default_factory=dict)
    """The same, each for the rank on which it took longest."""
    slowest_rank: str = ""
    """The rank with the longest step apart from its waiting, as ``rank 3 on node17``; empty with one rank."""
    init_s: float = 0.0
    """Seconds from the start of the process to run_start, on rank 0; of a resumed run the mean over its attempts."""
    staging_s: float | None = None
    """Seconds of staging; unset if nothing was staged, here and below."""
    staged_bytes: int | None = None
    """Bytes that landed on all nodes together."""
    staging_bytes_per_s: float | None = None
    """Bytes that landed on all nodes together, per second of staging."""
    evaluation_s: float | None = None
    """Seconds of one evaluation, on rank 0."""
    checkpoint_s: float | None = None
    """Seconds for which one checkpoint held rank 0."""
    time_s: float | None = None
    """Seconds from run_start to the target; for several instances, from the first run_start to the last run_stop of
    those that reached theirs (the rules' TTTa). Unset for a fixed number of steps, if no instance reached it, and for
    a single run that was resumed."""
    wall_s: float = 0.0
    """Seconds of the process, from its start to its end; the longest of all instances."""
    samples: int = 0
    """Training samples of all instances, including the warm-up."""
    joules: float | None = None
    """Energy from run_start to run_stop, of all nodes; unset if no counter was readable."""
    joules_per_sample: float | None = None
    """Energy per sample of the steps after the warm-up."""
    energy_words: str = ""
    """The source of ``joules`` and what it covers, or why there is none."""
    cpu_used: Sequence[float] = ()
    """Cores that each rank kept busy, over its compute threads, rank by rank."""
    device_busy: Sequence[float] = ()
    """Share of the time on the clock in which the accelerator of each rank was busy; empty if not measured."""
    device_words: str = ""
    """Why an accelerator's busy time was not measured; empty if it was, and on processors."""
    flops_per_sample: int = 0
    """Floating-point operations of a training sample, forward and backward."""
    peak_flops: float | None = None
    """FLOP/s of matrix products on all ranks together; unset if ``measure.probe`` was off."""
    slow: Sequence[str] = ()
    """Nodes that were slower than the others, each in words."""
    train_samples: int = 0
    """Training samples of an epoch of one instance; 0 means not known, here and below."""
    peak_memory_bytes: int = 0
    """Largest over ranks: of the accelerator, or of the process if there is none."""
    train_bytes: int = 0
    """Bytes of the files of one instance's training samples, where the dataset is stored."""
    validation_bytes: int = 0
    folder_bytes: int = 0
    """Bytes of the run folder of one instance, the largest of all."""
    device_type: str = ""
    """``cpu``, ``cuda``, ...; empty if not known."""
    instances: int = 1
    """Number of instances that count: they ran at the same time."""
    models: int = 0
    """Number of these that reached their target; 0 for a fixed number of steps."""
    missed: int = 0
    """Number of these that missed their target; 0 for a fixed number of steps."""
    samples_per_model: float | None = None
    """Training samples that a model took to its target, the mean over models."""
    span_s: float | None = None
    """Seconds from the first run_start to the last run_stop of the instances that count."""
    last_start_s: float | None = None
    """Seconds from their first run_start to their last."""
    together: float | None = None
    """The part of their training time in which all of them trained: from 0 to 1."""
    clocks: Sequence[InstanceClock] = ()
    """When each of several instances trained, including those that were pruned because of their time."""
    pruned: Sequence[Pruned] = ()
    """Instances that do not count, and those that missed their target, in order."""

    @property
    def reached_none(self) -> bool:
        """Whether the repeat trained to the target, and none of its instances reached it."""
        return self.missed > 0 and self.models == 0

    @property
    def models_per_minute(self) -> float | None:
        """The rules' throughput figure: 0 if all missed the target; unset if there is no time to it."""
        if self.reached_none:
            return 0.0
        return 60 * self.models / self.time_s if self.time_s else None

    @property
    def instance_samples_per_s(self) -> float:
        """Training samples per second of one instance, the mean over instances."""
        return self.samples_per_s / self.instances

    @property
    def instance_staged_bytes(self) -> float | None:
        """Bytes that landed on all nodes of one instance, the mean over instances."""
        return None if self.staged_bytes is None else self.staged_bytes / self.instances

    @property
    def model_flops(self) -> float | None:
        """FLOP/s that the model needed, in the steps after the warm-up."""
        return self.samples_per_s * self.flops_per_sample if self.flops_per_sample else None

    @property
    def flops_utilization(self) -> float | None:
        """Model FLOP/s over the measured peak; unset if one of them is not known."""
        rate = self.model_flops
        return rate / self.peak_flops if rate is not None and self.peak_flops else None


@dataclass(frozen=True)
class PointResult:
    """A point of the study: a number of nodes and one variant of the settings."""

    nodes: int
    variant: str
    """What distinguishes it apart from its size, such as ``bucket_bytes 1048576``; empty if nothing is varied."""
    runs: Sequence[RepeatResult] = ()
    """Repeats that are done."""
    failed: Sequence[str] = ()
    """Why repeats failed, one sentence each."""
    left: int = 0
    """Number of repeats that are left to run, or under way."""
    instances: int = 1
    """Number of instances that were requested; ``runs`` have the number of those that count."""
    cores_per_node: int = 0
    gpus_per_node: int = 0
    ranks_per_node: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of its variant."""

    @property
    def flops_utilization(self) -> float | None:
        """Model FLOP/s over the measured peak, the median over the repeats that know it."""
        known = [use for run in self.runs if (use := run.flops_utilization) is not None]
        return median(known) if known else None

    @property
    def ranks(self) -> int:
        """Number of ranks of all instances."""
        return self.nodes * self.ranks_per_node

    @property
    def misses(self) -> int:
        """Number of repeats in which no instance reached the target."""
        return sum(run.reached_none for run in self.runs)

    @property
    def train_samples(self) -> int:
        """Training samples of an epoch of one instance, from the runs of this row; 0 if they do not say."""
        return max((run.train_samples for run in self.runs), default=0)

    def largest(self, name: str) -> int | None:
        """The largest value of a count over repeats; unset if it is not known, which is 0."""
        return max((int(value) for value in self.values(name)), default=0) or None

    def values(self, name: str) -> list[float]:
        """A figure of every repeat that has it: a field of ``RepeatResult``, or a phase of ``step_s``."""
        figures = [run.step_s.get(name) if name in STEP_PARTS else getattr(run, name) for run in self.runs]
        return [float(value) for value in figures if value is not None]

    def middle(self, name: str) -> float | None:
        """The median over repeats; unset if no repeat has the figure.

        A repeat that missed the target took for ever to it, so that ``TO_TARGET`` are unset if half or more missed it.
        """
        values = self.values(name) + ([math.inf] * self.misses if name in TO_TARGET else [])
        found = median(values) if values else math.inf
        return None if found == math.inf else found

    def spread(self, name: str) -> float | None:
        """Largest minus smallest value, over the median; unset for fewer than two repeats."""
        values = self.values(name)
        middle = median(values) if values else 0.0
        return (max(values) - min(values)) / middle if len(values) > 1 and middle else None


def by_variant(rows: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    """The rows of each variant that have figures, smallest first."""
    rows_by_variant: dict[str, list[PointResult]] = {}
    for row in sorted(rows, key=lambda row: row.nodes):
        if row.runs:
            rows_by_variant.setdefault(row.variant, []).append(row)
    return rows_by_variant


def speed_up(row: PointResult, first: PointResult) -> float:
    """Throughput over that of ``first``, the smallest size of the same variant."""
    return rate(row) / full_rate(first)


def efficiency(row: PointResult, first: PointResult) -> float:
    """Speed-up over the factor in nodes: 1 is ideal, for strong and weak scaling and for throughput alike.

    Nodes of pruned instances also count: they delivered nothing.
    """
    return speed_up(row, first) * first.nodes / row.nodes


def efficiency_interval(row: PointResult, first: PointResult) -> tuple[float, float] | None:
    """The 95 % interval of the efficiency; ``None`` for ``first`` itself, and if either size has a single repeat."""
    if row is first:
        return None
    ideal = [rate * row.nodes / first.nodes for rate in full_rates(first)]
    found = rate_ratio(row.values("samples_per_s"), ideal)
    return None if found is None else found.interval


@dataclass(frozen=True)
class VariantComparison:
    """The fastest and the slowest variant of a size."""

    best: PointResult
    slowest: PointResult
    factor: float
    """Throughput of the best over that of the slowest, medians of the repeats."""
    p: float | None
    """Two-sided p-value of no difference, times the number of pairs of variants; unset if one has a single repeat."""

    @property
    def is_clear(self) -> bool:
        """Whether chance is an unlikely cause of the difference."""
        return self.p is not None and self.p <= LEVEL


def compare_variants(rows: Sequence[PointResult]) -> VariantComparison | None:
    """Compare the variants of one size that have figures; ``None`` if there are fewer than two.

    The pair is chosen by its outcome, so that its p-value is Bonferroni's for all pairs.
    """
    here = sorted((row for row in rows if row.runs), key=rate)
    if len(here) < 2:
        return None
    slowest, best = here[0], here[-1]
    found = rate_ratio(best.values("samples_per_s"), slowest.values("samples_per_s"))
    p = None if found is None else min(1.0, found.p * math.comb(len(here), 2))
    return VariantComparison(best, slowest, rate(best) / rate(slowest), p)


def rate(row: PointResult) -> float:
    """Median throughput in samples per second, of a row that has repeats."""
    return median(run.samples_per_s for run in row.runs)


def full_rates(row: PointResult) -> list[float]:
    """The throughput of every repeat if all its instances counted."""
    return [row.instances * run.instance_samples_per_s for run in row.runs]


def full_rate(row: PointResult) -> float:
    """The throughput of the row if all its instances counted: the median of one instance, times their number."""
    return row.instances * instance_rate(row)


def instance_rate(row: PointResult) -> float:
    """Median throughput of one instance in samples per second, of a row that has repeats."""
    return median(run.instance_samples_per_s for run in row.runs)
