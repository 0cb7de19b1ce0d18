"""The figures of a scaling study: what one repeat of a point came to, and the row of a point with its repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from hpcbench.phase_names import STEP_PARTS
from hpcbench.study.scaling.concurrency import InstanceClock, Pruned

Mode = Literal["strong", "weak", "throughput"]


@dataclass(frozen=True)
class RepeatResult:
    """One repeat of a point, of all its instances together that ran at the same time.

    Steps of the warm-up are in no figure of a step.
    """

    ranks: int
    """Of these instances."""
    global_batch_size: int
    """Of one instance."""
    samples_per_s: float
    """Training samples of all instances, over the steps after the warm-up."""
    step_s: Mapping[str, float]
    """Seconds of an optimizer step by ``STEP_PARTS``, the mean over ranks, so that they add up to its wall time."""
    step_median_s: Mapping[str, float] = field(default_factory=dict)
    """The same and the ``wall`` time of a step, each the median over ranks."""
    step_slowest_s: Mapping[str, float] = field(default_factory=dict)
    """The same, each of the rank that it took longest on."""
    init_s: float = 0.0
    """From the start of the process to run_start, on rank 0."""
    staging_s: float | None = None
    """Unset where nothing was staged, here and below."""
    staged_bytes: int | None = None
    """Landed on all nodes together."""
    staging_bytes_per_s: float | None = None
    """Landed on all nodes together, per second of staging."""
    evaluation_s: float | None = None
    """Of one evaluation, on rank 0."""
    checkpoint_s: float | None = None
    """For which one checkpoint held rank 0."""
    time_s: float | None = None
    """From run_start to the target; of several instances from the first run_start to the last run_stop of those that
    reached theirs (the rules' TTTa). Unset where a number of steps was asked for, or no instance reached the target."""
    wall_s: float = 0.0
    """Of the process, from its start to its end, the longest of all instances."""
    samples: int = 0
    """Training samples of all instances, warm-up included."""
    joules: float | None = None
    """From run_start to run_stop, of all nodes; unset where no counter was readable."""
    joules_per_sample: float | None = None
    """Of the steps after the warm-up."""
    energy_words: str = ""
    """The source of ``joules`` and what it covers, or why there is none."""
    cpu_used: Sequence[float] = ()
    """Cores that each rank kept busy, over the compute threads it had, rank by rank."""
    device_busy: Sequence[float] = ()
    """Share of the time on the clock in which the accelerator of each rank was busy; empty where not measured."""
    device_words: str = ""
    """Why an accelerator's busy time was not measured; empty where it was, and on processors."""
    flops_per_sample: int = 0
    """Floating-point operations of a training sample, forward and backward."""
    peak_flops: float | None = None
    """FLOP/s of matrix products on all ranks together; unset where ``measure.probe`` was off."""
    slow: Sequence[str] = ()
    """Nodes that were slower than the others, each in words."""
    train_samples: int = 0
    """Of an epoch of one instance; 0 means not known, here and below."""
    peak_memory_bytes: int = 0
    """Largest over ranks: of the accelerator, or of the process where there is none."""
    train_bytes: int = 0
    """Of the files of the training samples of one instance, where the dataset lies."""
    validation_bytes: int = 0
    folder_bytes: int = 0
    """Of the run folder of one instance, the largest of all."""
    device_type: str = ""
    """``cpu``, ``cuda``, ...; empty where not known."""
    instances: int = 1
    """Instances that count: they ran at the same time."""
    models: int = 0
    """Of these, those that reached their target; 0 where a number of steps was asked for."""
    samples_per_model: float | None = None
    """Training samples that a model took to its target, the mean over models."""
    span_s: float | None = None
    """From the first run_start to the last run_stop of the instances that count."""
    last_start_s: float | None = None
    """From their first run_start to their last."""
    together: float | None = None
    """The part of their training time in which all of them trained: from 0 to 1."""
    clocks: Sequence[InstanceClock] = ()
    """When each of several instances trained, those that were pruned for their time included."""
    pruned: Sequence[Pruned] = ()
    """Instances that do not count, and those that missed their target, in order."""

    @property
    def models_per_minute(self) -> float | None:
        """The rules' figure of throughput; unset where there is no time to the target."""
        return 60 * self.models / self.time_s if self.time_s else None

    @property
    def instance_samples_per_s(self) -> float:
        """Training samples of one instance per second, the mean over instances."""
        return self.samples_per_s / self.instances

    @property
    def instance_staged_bytes(self) -> float | None:
        """Landed on all nodes of one instance."""
        return None if self.staged_bytes is None else self.staged_bytes / self.instances

    @property
    def model_flops(self) -> float | None:
        """FLOP/s that the model needed, in the steps after the warm-up."""
        return self.samples_per_s * self.flops_per_sample if self.flops_per_sample else None

    @property
    def flops_utilization(self) -> float | None:
        """Model FLOP/s over the measured peak; unset where one of them is not known."""
        rate = self.model_flops
        return rate / self.peak_flops if rate is not None and self.peak_flops else None


@dataclass(frozen=True)
class PointResult:
    """A point of the study: a number of nodes and one variant of the settings."""

    nodes: int
    variant: str
    """What sets it apart beside its size, such as ``bucket_bytes 1048576``; empty where nothing is varied."""
    runs: Sequence[RepeatResult] = ()
    """Repeats that are done."""
    failed: Sequence[str] = ()
    """Why repeats failed, one sentence each."""
    left: int = 0
    """Repeats that are still to be run, or under way."""
    instances: int = 1
    """That were asked for; those that count are in ``runs``."""
    cores_per_node: int = 0
    gpus_per_node: int = 0
    ranks_per_node: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    """What its variant sets."""

    @property
    def flops_utilization(self) -> float | None:
        """Model FLOP/s over the measured peak, the median over the repeats that know it."""
        known = [use for run in self.runs if (use := run.flops_utilization) is not None]
        return median(known) if known else None

    @property
    def ranks(self) -> int:
        """Of all instances."""
        return self.nodes * self.ranks_per_node

    @property
    def train_samples(self) -> int:
        """Of an epoch of one instance, by the runs of this row; 0 where they do not say."""
        return max((run.train_samples for run in self.runs), default=0)

    def largest(self, name: str) -> int | None:
        """The largest of a count over repeats; unset where it is not known, which is 0."""
        return max((int(value) for value in self.values(name)), default=0) or None

    def values(self, name: str) -> list[float]:
        """A figure of every repeat that has it: a field of ``RepeatResult``, or a phase of ``step_s``."""
        found = [each.step_s.get(name) if name in STEP_PARTS else getattr(each, name) for each in self.runs]
        return [float(value) for value in found if value is not None]

    def middle(self, name: str) -> float | None:
        """The median over repeats; unset where no repeat has the figure."""
        values = self.values(name)
        return median(values) if values else None

    def spread(self, name: str) -> float | None:
        """Largest minus smallest over the median; unset below two repeats."""
        values = self.values(name)
        middle = median(values) if values else 0.0
        return (max(values) - min(values)) / middle if len(values) > 1 and middle else None


def by_variant(rows: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    """The rows of each variant that have figures, smallest first."""
    found: dict[str, list[PointResult]] = {}
    for row in sorted(rows, key=lambda row: row.nodes):
        if row.runs:
            found.setdefault(row.variant, []).append(row)
    return found


def speed_up(row: PointResult, first: PointResult) -> float:
    """Throughput over that of ``first``, the smallest size of the same variant."""
    return rate(row) / full_rate(first)


def efficiency(row: PointResult, first: PointResult) -> float:
    """Speed-up over the factor in nodes: 1 is ideal, for strong and weak scaling and for throughput alike.

    Nodes of instances that were pruned count, too: they delivered nothing.
    """
    return speed_up(row, first) * first.nodes / row.nodes


def rate(row: PointResult) -> float:
    """Median throughput in samples per second. The row has repeats."""
    return median(each.samples_per_s for each in row.runs)


def full_rate(row: PointResult) -> float:
    """The throughput of the row if all its instances had run: that of those that count, times what they are of all."""
    return row.instances * instance_rate(row)


def instance_rate(row: PointResult) -> float:
    """Median throughput of one instance in samples per second. The row has repeats."""
    return median(each.instance_samples_per_s for each in row.runs)
