"""What a convergence study found: a record per run and a record per row, from run folders alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpcbench.config.schema import RunConfig
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.definition import Study
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.folder import StudyFolder
from hpcbench.study.lr_search import Choice
from hpcbench.study.plan import (
    PlannedRun,
    Point,
    all_runs,
    all_searches,
    geometry,
    points,
    rate,
    row_search,
    runs_of_seeds,
    searches,
    status_of,
    trial_run,
)  # fmt: skip
from hpcbench.study.preset_values import study_config
from hpcbench.study.request import beside_the_recipe
from hpcbench.study.run_status import RunStatus
from hpcbench.study.seed_spread import resolved_spread

if TYPE_CHECKING:
    import pandas as pd

    from hpcbench.results.records import Run

PLACED = {"replicate": "", "shard": " sharded", "shard+reshuffle": " reshuffled", "shard+contiguous": " contiguous"}
"""What follows the optimizer in the label of a series with this placement."""
ROUNDED = 1e-3
"""Epochs in a summary are rounded to three digits."""
CLOSE = 0.05
"""Standard error of a mean, as a part of it, for which the number of runs for a score is given."""


@dataclass(frozen=True)
class Row:
    """A point of the study with its runs, and how its rate was chosen."""

    point: Point
    choice: Choice
    rate: float | None
    runs: list[tuple[PlannedRun, RunStatus]]
    """The runs with the seeds of the study."""
    search: list[tuple[PlannedRun, RunStatus]]
    """The runs that chose the rate."""
    rate_from: str
    """The choice of the rate in words."""
    at_edge: bool
    """Whether the best multiplier is the smallest or the largest that was tried."""
    ranks: int
    """Data-parallel ranks of the machine that the point represents."""
    evaluations_per_epoch: int = 1
    max_epochs: int = 0
    """How many epochs each run may make, where they do not end by steps."""
    max_steps: int | None = None
    """How many steps each run may make instead."""
    keeps_last_batch: bool = True
    """Whether the last, smaller batch of an epoch makes a step, too."""
    copies: Mapping[str, str] = field(default_factory=dict)
    """Runs that trained as an earlier run did, to the last digit, and that run (``trajectories.mark_copies``)."""

    @property
    def step(self) -> float:
        """Epochs between two evaluations."""
        return 1 / self.evaluations_per_epoch

    @property
    def nothing_to_borrow(self) -> bool:
        """Whether the row has no runs because no rate reached the target at the batch that it borrows from."""
        return bool(self.point.source) and self.choice.failed

    @property
    def distinct(self) -> list[tuple[PlannedRun, RunStatus]]:
        """The runs; those that trained alike count once."""
        names = {run.name for run, _ in self.runs}
        return [(run, state) for run, state in self.runs if self.copies.get(run.name) not in names]

    def count(self, *statuses: str) -> int:
        """Number of runs with one of these statuses."""
        return sum(state.status in statuses for _, state in self.runs)

    @property
    def left(self) -> int:
        """Number of runs that are left to make or under way."""
        return sum(not state.final for _, state in self.runs)

    @property
    def summaries(self) -> list[Summary]:
        """The summaries of the runs that reached the target."""
        return [state.summary for _, state in self.distinct if state.status == "reached" and state.summary is not None]

    def values(self, name: str) -> list[float]:
        """The number ``name`` of each of ``summaries``."""
        return [float(getattr(summary, name)) for summary in self.summaries]

    @property
    def times(self) -> list[float]:
        """Seconds to the target of the runs that were never stopped: the clock keeps running while a run is stopped."""
        return [summary.time_to_solution_s for summary in self.summaries if not summary.resumed]

    @property
    def epochs(self) -> list[float]:
        """Epochs to target of the runs that reached it."""
        return self.values("epochs_to_target")

    @property
    def epoch_runs(self) -> list[EpochRun]:
        """All runs that ended, with what their evaluations say about the epochs to the target.

        A run that diverged would not have met the target in all the epochs that it was allowed: an early divergence is
        no weaker evidence than a miss. A run that failed shows nothing.
        """
        epoch_runs = (self.epoch_run(state) for _, state in self.distinct)
        return [run for run in epoch_runs if run is not None]

    def epoch_run(self, state: RunStatus) -> EpochRun | None:
        """What one run says about the epochs to the target; ``None`` if it says nothing."""
        if state.summary is None or state.status not in ("reached", "missed", "diverged"):
            return None
        summary, steps = state.summary, self._steps_per_epoch(state.summary)
        if state.status == "reached" and summary.epochs_to_target:
            return EpochRun(self.point.batch, *self._between(summary.epochs_to_target, steps))
        made = self._between(summary.epochs, steps)[1] if summary.epochs else 0.0
        if state.status == "diverged":
            made = max(made, self._epochs_allowed(steps))
        return EpochRun(self.point.batch, made, math.inf) if made else None

    def _between(self, epochs: float, steps: int | None) -> tuple[float, float]:
        """The exact epochs of the evaluation before the one that a summary gives in three digits, and of this one.

        Evaluations come after whole steps, of which an epoch has ``steps``. The last one of a run that ends by steps
        may be between two others.
        """
        count = self.evaluations_per_epoch

        def place(number: int) -> float:
            whole, part = divmod(number, count)
            return whole + (round(part * steps / count) / steps if steps else part / count)

        number = round(epochs * count)
        is_regular = abs(number / count - epochs) < ROUNDED
        at = place(number) if is_regular else float(epochs)
        before = number - 1 if is_regular else math.floor(epochs * count)
        while before > 0 and place(before) >= at:  # more evaluations than steps
            before -= 1
        return place(max(before, 0)), at

    def _steps_per_epoch(self, summary: Summary) -> int | None:
        if not summary.train_samples:
            return None
        whole, part = divmod(summary.train_samples, self.point.batch)
        return whole + bool(part and self.keeps_last_batch) or None

    def _epochs_allowed(self, steps: int | None) -> float:
        if self.max_steps is None:
            return float(self.max_epochs)
        return self.max_steps / steps if steps else 0.0

    @property
    def all_reached(self) -> bool:
        """Whether no run that is done missed the target, and at least one reached it."""
        return bool(self.epochs) and self.count("missed", "diverged", "failed") == 0

    @property
    def label(self) -> str:
        """The optimizer and what else distinguishes the series: ``lars sharded``, ``sgd from 32``."""
        placed = PLACED[self.point.placement]
        return f"{self.point.optimizer}{placed}" + (f" from {self.point.source}" if self.point.source else "")


def series(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows grouped by optimizer and placement; borrowed recipes are separate series."""
    rows_by_label: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_label.setdefault(row.label, []).append(row)
    return rows_by_label


def series_to_fit(rows: Sequence[Row]) -> dict[str, tuple[list[Row], int]]:
    """Rows of each series, and at how many of them runs reached the target; borrowed recipes are no observations."""
    rows_by_label = series([row for row in rows if not row.point.source])
    return {label: (members, sum(bool(row.epochs) for row in members)) for label, members in rows_by_label.items()}


def runs_needed(values: list[float], step: float) -> int | None:
    """Runs whose mean has a standard error of 5 %, at this spread; evaluations are ``step`` epochs apart.

    ``None`` if the spread is not known: for one run, or if rounding to evaluations hides it.
    """
    spread = resolved_spread(values, step)
    return None if spread is None else max(1, math.ceil((spread / CLOSE) ** 2))


def read_rows(study: Study, statuses: Mapping[str, RunStatus]) -> list[Row]:
    """All rows of the study, with the current status of its runs."""
    rows, settings, searching = [], fixed_settings(study), all_searches(study, statuses)
    train, keeps = settings.train, settings.data.last_batch == "keep"
    longest = (train.max_epochs, train.max_steps, keeps)
    for point in points(study):
        point_search = row_search(study, point, searching)
        chosen, tried = point_search.choice, [trial_run(point, trial) for trial in point_search.trials]
        search = [(run, status_of(run, statuses)) for run in tried]
        runs = [(run, status_of(run, statuses)) for run in runs_of_seeds(study, point, chosen)]
        ranks, _ = geometry(study, point)
        edge = searches(study, point) and not chosen.failed and searching[point.optimizer].at_edge(point)
        value = None if chosen.multiplier is None else rate(study, point, chosen.multiplier)
        words = rate_words(study, point, chosen)
        rows.append(Row(point, chosen, value, runs, search, words, edge, ranks, train.evaluations_per_epoch, *longest))
    return rows


def fixed_settings(study: Study) -> RunConfig:
    """The settings that all runs of a study have, such as how long they train and how often they are evaluated."""
    return study_config(study, beside_the_recipe(study.settings))


def rate_words(study: Study, point: Point, chosen: Choice) -> str:
    """How the rate of a row was chosen."""
    if chosen.blocked:
        return "runs failed"
    if chosen.failed:
        return "no rate" if point.source else "all diverged"
    if chosen.multiplier is None:
        return "searching"
    if point.source:
        return "borrowed"
    rule = {"none": "base"}.get(name := study.rates[point.optimizer].rule, name)
    return f"x {chosen.multiplier:g}" if searches(study, point) or chosen.multiplier != 1 else rule


def run_record(study: Study, run: PlannedRun, state: RunStatus, same_as: str = "") -> dict[str, Any]:
    """One run as a row of ``results.csv``; what the run did not reach is empty."""
    s, (ranks, local) = state.summary, geometry(study, run.point)
    reached = state.status == "reached" and s is not None
    quality = None if s is None else s.metrics.get(s.metric, s.best)
    return {
        "run": run.name, "role": "search" if run.is_search else "seed", "batch": run.point.batch,
        "optimizer": run.point.optimizer, "placement": run.point.placement, "borrowed_from": run.point.source,
        "seed": run.seed, "multiplier": run.multiplier, "lr": rate(study, run.point, run.multiplier),
        "ranks": ranks, "local_batch_size": local, "status": state.status, "reason": state.reason,
        "epochs_to_target": s.epochs_to_target if reached and s else None,
        "samples_to_target": s.samples if reached and s else None,
        "steps_to_target": s.steps if reached and s else None,
        "epochs": s.epochs if s else None, "metric": s.metric if s else "", "target": s.target if s else None,
        "quality": quality, "best": s.best if s else None,
        "time_s": s.time_to_solution_s if s else None, "wall_s": s.wall_s if s else None,
        "samples_per_s": s.samples_per_s if s else None,
        "noise_scale": s.noise_scale if s else None, "threads": s.threads if s else None,
        "same_as": same_as, "verified": NOT_VERIFIED, "folder": f"runs/{run.name}",
    }  # fmt: skip


def results_frame(study: Study, statuses: Mapping[str, RunStatus], rows: Sequence[Row] = ()) -> pd.DataFrame:
    """Every planned run, including those that have not been made; ``rows`` tell which runs are copies of others."""
    import pandas as pd

    copies = {name: original for row in rows for name, original in row.copies.items()}
    records = [
        run_record(study, run, statuses.get(run.name, RunStatus("absent")), copies.get(run.name, ""))
        for run in all_runs(study, statuses)
    ]
    whole = ("epochs_to_target", "samples_to_target", "steps_to_target", "epochs", "threads")
    # With several evaluations per epoch, epochs may be whole numbers and fractions, such as 3 and 2.25.
    types = {name: "object" if any((record[name] or 0) % 1 for record in records) else "Int64" for name in whole}
    return pd.DataFrame(
        {name: pd.Series([record[name] for record in records], dtype=types.get(name)) for name in records[0]}
    )


def read_curves(folder: StudyFolder, rows: list[Row]) -> dict[str, Run]:
    """The runs that have a table of epochs, by name, with only that table."""
    import pandas as pd

    from hpcbench.results.records import Run

    curves = {}
    for row in rows:
        for run, state in (*row.runs, *row.search):
            place = RunFolder(folder.run(run.name))
            if state.summary is not None and place.epochs.exists():
                epochs = place.read_epochs()
                if not epochs.empty:
                    curves[run.name] = Run(place, state.summary, epochs, pd.DataFrame())
    return curves
