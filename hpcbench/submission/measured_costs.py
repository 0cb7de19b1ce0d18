"""What short runs tell about the cost of long ones: rate, evaluation and fixed parts at one size and batch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.measure.log_rules import PUBLISHED_SAMPLES, PUBLISHED_SHAPES
from hpcbench.results.units import counted
from hpcbench.submission.projection import Costs
from hpcbench.submission.submitted_runs import SubmittedRun, group_of, read_submitted
from staging.errors import InputError


@dataclass(frozen=True)
class MeasuredCosts:
    """The costs, and what the runs have in common."""

    application: str
    ruleset: str
    division: str
    batch: int
    nodes: int
    recipe: dict[str, Any]
    """Settings in the log of the first run."""
    costs: Costs
    left_out: tuple[str, ...] = ()
    """Lines on the runs that do not count, because they did not end or were cut off."""
    smaller_set: str = ""
    """What the runs cannot tell, because they train on fewer samples than the published set has; empty if not."""

    @property
    def words(self) -> str:
        """What was measured, in words."""
        rate = statistics.median(self.costs.samples_per_s)
        return (
            f"{self.application}, {counted(self.nodes, 'node')}, batch {self.batch:,}, {self.division}: "
            f"{rate:.4g} samples/s ({len(self.costs.samples_per_s)} measured), evaluation "
            f"{self.costs.evaluation_s:.4g} s, {self.costs.fixed_s:.4g} s besides"
        )


def read_costs(paths: Sequence[Path]) -> MeasuredCosts:
    """The costs that runs measured.

    Raises ``InputError`` if they differ in size or batch, lack a part, were resumed, simulated ranks or nodes, or have
    samples of another shape than the published set.
    """
    runs, left_out = read_submitted(paths)
    first = runs[0]
    if first.benchmark not in PUBLISHED_SAMPLES:
        raise InputError(f"{first.folder.path}: the sizes of {first.benchmark}'s dataset are not known here")
    for run in runs:
        if run.summary.resumed:
            raise InputError(
                f"{run.folder.path} was resumed, and its gaps would count as a cost; give runs in one piece"
            )
        refuse_other_work(run)
        for what in ("application", "nodes", "global_batch_size", "division", "ruleset"):
            one, other = getattr(first.summary, what), getattr(run.summary, what)
            if one != other:
                raise InputError(f"the runs differ in {what}: {one} in {first.folder.path}, {other} in "
                                 f"{run.folder.path}; give those of one size and batch")  # fmt: skip
    train, validation = PUBLISHED_SAMPLES[first.benchmark]
    return MeasuredCosts(
        first.benchmark, first.summary.ruleset, first.summary.division, first.summary.global_batch_size, first.nodes,
        first.record.recipe,
        Costs(tuple(rate_of(run) for run in runs), statistics.median(evaluation_s(run, validation) for run in runs),
              statistics.median(fixed_s(run) for run in runs), train),
        tuple(left_out), smaller_set(runs, train),
    )  # fmt: skip


def smaller_set(runs: Sequence[SubmittedRun], published: int) -> str:
    """A line on staging and the first epoch of a set smaller than the published one, which do not grow with it here."""
    fewest = min((run.record.train_samples or published for run in runs), default=published)
    if fewest >= published:
        return ""
    return (
        f"The set of the runs has {fewest:,} of {published:,} training samples: staging and the extra time of the "
        "first epoch are counted as for this set, and take longer with the published one."
    )


def refuse_other_work(run: SubmittedRun) -> None:
    """Raise ``InputError`` if a run simulated ranks or nodes, or if its samples have not the published shape."""
    for what in ("ranks", "nodes"):
        count = getattr(run.summary, f"simulated_{what}")
        if count:
            raise InputError(
                f"{run.folder.path}: its {what} were simulated (parallel.simulated_{what} {count}), and its times are "
                f"not those of real ones; give runs on real {what}"
            )
    data = group_of(run.config, "data")
    for key, published in PUBLISHED_SHAPES[run.benchmark].items():
        if data.get(key) != published:
            raise InputError(
                f"{run.folder.path}: data.{key} is {data.get(key)}, that of the published set {published}; give runs "
                "on samples of the published shape"
            )


def rate_of(run: SubmittedRun) -> float:
    """Training samples per second: over the steps after the warm-up, else over all epochs but the first.

    Raises ``InputError`` if there is no rate.
    """
    rate = run.summary.warm_samples_per_s or run.record.samples_per_s or run.summary.samples_per_s
    if not rate or rate <= 0:
        raise InputError(f"{run.folder.path} measured no rate; train more steps (--train.max_steps)")
    return float(rate)


def fixed_s(run: SubmittedRun) -> float:
    """Seconds of a run besides its epochs; how much longer the first one takes is known from two epochs on.

    The last epoch may be cut short, so the first one is compared with the rate.
    """
    record, longer = run.record, 0.0
    if len(record.epochs_s) > 1 and record.train_samples:
        longer += max(0.0, record.epochs_s[0] - record.train_samples / rate_of(run))
    if len(record.evaluations_s) > 1:
        longer += max(0.0, record.evaluations_s[0] - statistics.fmean(record.evaluations_s[1:]))
    return (record.staging_s or 0.0) + (record.rest_s or 0.0) + longer


def evaluation_s(run: SubmittedRun, published: int) -> float:
    """Seconds of an evaluation of the published validation set. Raises ``InputError`` if the run made none."""
    seconds, samples = run.record.evaluations_s, run.record.validation_samples
    if not seconds or not samples:
        raise InputError(f"{run.folder.path} made no evaluation, whose time counts; let it end with one")
    return statistics.fmean(seconds[1:] or seconds) * published / samples
