"""Published entries as the model sees them: phases of their runs, epochs, recipe, and the machine that made them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.batch.machine import Machine
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.prediction.platforms import Platform, platform_of
from hpcbench.prediction.work import Work, published_work
from staging.errors import InputError

REFERENCE_CODE = frozenset({("ANL", "v1.0")})
"""Submitter and round of entries on A100 that ran the reference code as it is: 3.7 to 5.5 times the time of a step that
others took there at the same local batch."""
TUNED = "A100"
TUNED_ROUNDS = ("v1.0", "v2.0")
LEAST_STAGING_S = 1.0
"""Less between the lines of a log is no staging; data were then brought in the first epoch."""


@dataclass(frozen=True)
class PublishedEntry:
    """The runs of one entry that reached the target. Seconds are medians over runs."""

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
    """Time to train; of throughput from the first start to the last end."""
    staging_s: float
    """Before the first epoch."""
    first_epoch_s: float
    epoch_s: float
    """Training of a later epoch."""
    evaluation_s: float
    """A later one."""
    extras_s: float
    """The first evaluation beyond a later one, and what lies between phases."""
    train_samples: int
    validation_samples: int
    platform: Platform | None
    """``None`` where no file has what is needed of the machine."""

    @property
    def local_batch(self) -> float:
        """Samples of an accelerator in a step."""
        return self.global_batch / self.accelerators

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return self.train_samples // self.global_batch

    @property
    def step_s(self) -> float:
        """Of a later epoch."""
        return self.epoch_s / self.steps

    @property
    def stages_first(self) -> bool:
        """Whether data were staged before the first epoch, not within it."""
        return self.staging_s >= LEAST_STAGING_S

    @property
    def arrival_s(self) -> float:
        """Seconds until all data had reached the nodes: staging, or the first epoch that brought them."""
        excess = max(self.first_epoch_s - self.epoch_s, 0.0)
        return self.staging_s + excess if self.stages_first else max(self.first_epoch_s, self.epoch_s)

    @property
    def epoch_and_evaluation_s(self) -> float:
        """Seconds per epoch, with its evaluation."""
        return self.epoch_s + self.evaluation_s

    @property
    def mean_epochs(self) -> float:
        """Over all runs."""
        return statistics.fmean(self.epochs)

    @property
    def work(self) -> Work:
        """Counts of the application."""
        return published_work()[self.application]

    @property
    def words(self) -> str:
        """The entry in words."""
        return f"{self.round} {self.application} {self.site}, {self.accelerators:,} accelerators, batch {self.global_batch:,}"

    @property
    def tuned(self) -> bool:
        """Whether it is one of tuned code on A100 in v1.0 or v2.0, which the model is fitted to."""
        on_a100 = self.platform is not None and self.platform.model == TUNED and self.round in TUNED_ROUNDS
        return on_a100 and (self.organization, self.round) not in REFERENCE_CODE


def published_entries(records: Iterable[RunRecord], machines: Sequence[Machine]) -> list[PublishedEntry]:
    """The entries of published runs, in the order of the runs; pruned and failed runs are left out.

    An entry that a later round has again, with the same runs, counts once.
    """
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for record in records:
        usable = record.status == "success" and not record.pruned and record.epochs is not None and record.epochs_s
        if usable and record.application in published_work() and record.time_to_train_s is not None:
            key = (record.round, record.application, record.mode, record.organization, record.system,
                   record.global_batch_size, record.division)  # fmt: skip
            groups.setdefault(key, []).append(record)
    found, seen = [], set()
    for runs in groups.values():
        starts = tuple(run.start_unix_s for run in runs)
        if starts not in seen:
            seen.add(starts)
            found.append(entry_of(runs, machines))
    return found


def entry_of(runs: Sequence[RunRecord], machines: Sequence[Machine]) -> PublishedEntry:
    """The entry of runs that reached the target."""
    first = runs[0]
    assert first.accelerators is not None
    assert first.global_batch_size is not None
    assert first.train_samples is not None
    assert first.validation_samples is not None
    machine = machine_of(first, machines)
    later = [statistics.median(run.epochs_s[1:] or run.epochs_s) for run in runs]
    evaluations = [statistics.median(run.evaluations_s[1:] or run.evaluations_s or [0.0]) for run in runs]
    firsts = [run.evaluations_s[0] if run.evaluations_s else 0.0 for run in runs]
    extras = [(run.rest_s or 0.0) + value - usual
              for run, value, usual in zip(runs, firsts, evaluations, strict=True)]  # fmt: skip
    throughput = first.mode == "throughput"
    return PublishedEntry(
        round=first.round or "", application=first.application or "", organization=first.organization or "",
        system=first.system or "", site=machine.name if machine else first.organization or "", throughput=throughput,
        division=first.division or "", nodes=first.nodes or first.accelerators, accelerators=first.accelerators,
        global_batch=first.global_batch_size, recipe=first.recipe,
        epochs=tuple(run.epochs for run in runs if run.epochs is not None),
        one_trajectory=len(runs) > 1 and len({(run.quality, run.epochs) for run in runs}) == 1,
        time_s=whole_time(runs) if throughput else statistics.median(run.time_to_train_s or 0.0 for run in runs),
        staging_s=statistics.median(run.staging_s or 0.0 for run in runs),
        first_epoch_s=statistics.median(run.epochs_s[0] for run in runs), epoch_s=statistics.median(later),
        evaluation_s=statistics.median(evaluations), extras_s=statistics.median(extras),
        train_samples=first.train_samples, validation_samples=first.validation_samples,
        platform=known_platform(machine, machines),
    )  # fmt: skip


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
    """The platform of a machine, or ``None`` where its file lacks what a step's time follows from."""
    if machine is None:
        return None
    try:
        return platform_of(machine, machines)
    except InputError:
        return None
