"""Published entries as the model sees them: phases of their runs, epochs, recipe, and the machine that made them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.batch.machine import Machine
from hpcbench.mlperf.published import PublishedRun
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.prediction.platforms import Platform, platform_of
from hpcbench.prediction.workload import Work, published_work
from hpcbench.results.units import counted
from staging.errors import InputError

REFERENCE_CODE = frozenset({("ANL", "v1.0")})
"""Submitter and round of entries on A100 that ran the reference code as it is: a step took 3.7 to 5.5 times as long as
those of others there at the same local batch."""
TUNED = "A100"
TUNED_ROUNDS = ("v1.0", "v2.0")
LEAST_STAGING_S = 1.0
"""Less than this between the lines of a log is no staging; the first epoch then brought the data."""


@dataclass(frozen=True)
class ModelEntry:
    """The runs of one entry that reached the target. Seconds are means over the runs that the score is the mean of."""

    round: str
    application: str
    organization: str
    system: str
    site: str
    """Name of the machine's file; the submitter where there is none."""
    throughput: bool
    division: str
    nodes: int
    accelerators: int
    global_batch: int
    recipe: Mapping[str, Any]
    epochs: tuple[float, ...]
    """To the target, of each run."""
    one_trajectory: bool
    """Whether all runs ended with the same quality after the same epochs: one run, made several times."""
    time_s: float
    """The score: mean time to train without the fastest and the slowest run; for throughput, from the first start to
    the last end."""
    staging_s: float
    """Before the first epoch."""
    first_epoch_s: float
    epoch_s: float
    """Training of a later epoch, as a mean."""
    usual_epoch_s: float
    """The same, as a median over epochs and runs: without epoch jitter."""
    evaluation_s: float
    """A later evaluation, as a mean."""
    extras_s: float
    """The first evaluation beyond a later one, and what lies between phases."""
    train_samples: int
    validation_samples: int
    platform: Platform | None
    """``None`` where no file has the facts that are needed of the machine."""

    @property
    def local_batch(self) -> float:
        """Samples of an accelerator in a step."""
        return self.global_batch / self.accelerators

    @property
    def steps(self) -> int:
        """Optimizer steps of an epoch."""
        return self.train_samples // self.global_batch

    @property
    def step_s(self) -> float:
        """Seconds of a step in a later epoch, without epoch jitter."""
        return self.usual_epoch_s / self.steps

    @property
    def stages_first(self) -> bool:
        """Whether data were staged before the first epoch, not within it."""
        return self.staging_s >= LEAST_STAGING_S

    @property
    def data_staging_s(self) -> float:
        """Seconds until all data had reached the nodes: staging, or the first epoch that brought them."""
        excess = max(self.first_epoch_s - self.epoch_s, 0.0)
        return self.staging_s + excess if self.stages_first else max(self.first_epoch_s, self.epoch_s)

    @property
    def epoch_and_evaluation_s(self) -> float:
        """Seconds per epoch, with its evaluation."""
        return self.epoch_s + self.evaluation_s

    @property
    def mean_epochs(self) -> float:
        """Mean epochs to the target over all runs."""
        return statistics.fmean(self.epochs)

    @property
    def work(self) -> Work:
        """Counts of the application."""
        return published_work()[self.application]

    @property
    def words(self) -> str:
        """The entry in words."""
        size = f"{counted(self.accelerators, 'accelerator')}, batch {self.global_batch:,}"
        return f"{self.round} {self.application} {self.site}, {size}"

    @property
    def tuned(self) -> bool:
        """Whether it is an entry of tuned code on A100 in v1.0 or v2.0, to which the model is fitted."""
        on_a100 = self.platform is not None and self.platform.model == TUNED and self.round in TUNED_ROUNDS
        return on_a100 and (self.organization, self.round) not in REFERENCE_CODE


def model_entries(records: Iterable[RunRecord], machines: Sequence[Machine]) -> list[ModelEntry]:
    """The entries of published runs, in the order of the runs; pruned and failed runs are left out.

    An entry that appears again in a later round, with the same runs, counts once.
    """
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for record in records:
        usable = record.converged and not record.pruned and record.application in published_work()
        if usable and None not in (epochs_of(record), record.epochs, record.time_to_train_s):
            key = (record.round, record.application, record.mode, record.organization, record.system,
                   record.global_batch_size, record.division)  # fmt: skip
            groups.setdefault(key, []).append(record)
    entries, seen = [], set()
    for runs in groups.values():
        starts = tuple(run.start_unix_s for run in runs)
        if starts not in seen:
            seen.add(starts)
            entries.append(entry_of(runs, machines))
    return entries


def entry_of(runs: Sequence[RunRecord], machines: Sequence[Machine]) -> ModelEntry:
    """The entry of runs that reached the target."""
    first = runs[0]
    assert first.accelerators is not None
    assert first.global_batch_size is not None
    assert first.train_samples is not None
    assert first.validation_samples is not None
    machine, throughput = machine_of(first, machines), first.mode == "throughput"
    kept = list(runs) if throughput else scored(runs)
    epochs = [timing for run in kept if (timing := epochs_of(run)) is not None]
    evaluations = [evaluations_of(run) or FirstAndLater(0.0, 0.0, 0.0, 0.0) for run in kept]
    return ModelEntry(
        round=first.round or "", application=first.application or "", organization=first.organization or "",
        system=first.system or "", site=machine.name if machine else first.organization or "", throughput=throughput,
        division=first.division or "", nodes=first.nodes or first.accelerators, accelerators=first.accelerators,
        global_batch=first.global_batch_size, recipe=first.recipe,
        epochs=tuple(run.epochs for run in runs if run.epochs is not None),
        one_trajectory=len(runs) > 1 and len({(run.quality, run.epochs) for run in runs}) == 1,
        time_s=whole_time(runs) if throughput else statistics.fmean(run.time_to_train_s or 0.0 for run in kept),
        staging_s=statistics.fmean(run.staging_s or 0.0 for run in kept),
        first_epoch_s=statistics.fmean(timing.first for timing in epochs), epoch_s=later_mean(epochs),
        usual_epoch_s=statistics.median(timing.usual for run in runs if (timing := epochs_of(run)) is not None),
        evaluation_s=later_mean(evaluations),
        extras_s=statistics.fmean(run.rest_s or 0.0 for run in kept)
        + statistics.fmean(timing.first for timing in evaluations) - later_mean(evaluations),
        train_samples=first.train_samples, validation_samples=first.validation_samples,
        platform=known_platform(machine, machines),
    )  # fmt: skip


def scored(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs whose mean is the score: without the fastest and the slowest."""
    ordered = sorted(runs, key=lambda run: run.time_to_train_s or 0.0)
    return ordered[1:-1] if len(ordered) > 2 else ordered


@dataclass(frozen=True)
class FirstAndLater:
    """Seconds of the first of several epochs or evaluations, and sum, number and median of the later ones."""

    first: float
    later: float
    count: float
    usual: float


def epochs_of(record: RunRecord) -> FirstAndLater | None:
    """Training of the epochs of a run, where its log gives it."""
    if isinstance(record, PublishedRun):
        return first_and_later(record.first_epoch_s, record.training_s, record.epochs, record.epoch_median_s)
    return first_and_later(*sums(record.epochs_s))


def evaluations_of(record: RunRecord) -> FirstAndLater | None:
    """Evaluations of a run, where its log gives them."""
    if isinstance(record, PublishedRun):
        usual = record.evaluation_median_s
        return first_and_later(record.first_evaluation_s, record.evaluation_s, record.epochs, usual)
    return first_and_later(*sums(record.evaluations_s))


def sums(times: Sequence[float]) -> tuple[float | None, float | None, int, float | None]:
    """The first, the sum, the number, and the median of the later ones."""
    if not times:
        return None, None, 0, None
    return times[0], sum(times), len(times), statistics.median(times[1:] or times)


def first_and_later(
    first: float | None, total: float | None, count: float | None, usual: float | None
) -> FirstAndLater | None:
    """The first of ``count`` and the others, where they are known."""
    if first is None or total is None or count is None or usual is None:
        return None
    return FirstAndLater(first, total - first, count - 1, usual)


def later_mean(timings: Sequence[FirstAndLater]) -> float:
    """Mean of the later ones over all runs; for runs with a single one, the mean of those."""
    count = sum(timing.count for timing in timings)
    return (
        sum(timing.later for timing in timings) / count
        if count
        else statistics.fmean(timing.first for timing in timings)
    )


def whole_time(runs: Sequence[RunRecord]) -> float:
    """From the first start to the last end."""
    timed = [(run.start_unix_s, run.time_to_train_s) for run in runs]
    spans = [(start, start + time) for start, time in timed if start is not None and time is not None]
    return max(end for _, end in spans) - min(start for start, _ in spans)


def machine_of(record: RunRecord, machines: Sequence[Machine]) -> Machine | None:
    """The machine that made a published run, where a file has its published name."""
    organization, system = record.organization or "", record.system or ""
    for machine in machines:
        if any(name.names(organization, system) for name in machine.published_as):
            return machine
    return None


def known_platform(machine: Machine | None, machines: Sequence[Machine]) -> Platform | None:
    """The platform of a machine, or ``None`` where its file lacks its accelerators."""
    if machine is None:
        return None
    try:
        return platform_of(machine, machines, calibrated=True)
    except InputError:
        return None
