"""How far apart the runs of an entry are, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import correlation, median, stdev

from hpcbench.analysis.entry_runs import EntryRuns, distinct
from hpcbench.analysis.run_seconds import seconds_of
from hpcbench.analysis.sheets import column, text
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.probability import olympic_error
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED

FEWEST = 3
"""The fewest runs for which a spread is given."""


@dataclass(frozen=True)
class VariationRow:
    """Spread between the runs of an entry."""

    application: str = column("application", "of the entry", text)
    entry: str = column("entry", "round, submitter and system", text)
    runs: int = column("runs", "runs that converged", units.integer)
    trajectories: int = column("distinct", "of distinct trajectory", units.integer)
    time_sd: float = column(
        "time",
        "standard deviation of ln(time to train) over runs of distinct trajectory",
        lambda value: units.significant(value, 2),
    )
    epochs_sd: float | None = column("epochs", "the same of ln(epochs)", lambda value: units.significant(value, 2))
    epoch_s_sd: float = column(
        "s/epoch",
        "standard deviation of ln(seconds of training and evaluation per epoch) over all runs",
        lambda value: units.significant(value, 2),
    )
    explained: float | None = column(
        "by epochs",
        "square of the correlation of ln(time) and ln(epochs), adjusted for the number of runs and 0 where that is "
        "negative; absent where epochs do not vary",
        units.percent,
    )
    score_sd: float = column(
        "of a score", "standard error of an olympic mean of as many normal values with time_sd", units.percent
    )
    same_as: str = column("same runs as", "an entry that was made of the same runs", text)
    verified: str = column("verified", "of own ones: not verified", text, page=False)


def variation_rows(entries: Sequence[EntryRuns], same: Mapping[tuple[str, str], EntryRuns]) -> list[VariationRow]:
    """A row for each entry of three runs or more that converged. ``same`` has entries made of another's runs."""
    return [row for entry in entries if (row := variation_row(entry, same.get(entry.identity))) is not None]


def variation_row(entry: EntryRuns, same: EntryRuns | None = None) -> VariationRow | None:
    """The spread of an entry; ``None`` for fewer than three runs. With fewer distinct trajectories, seconds alone."""
    good = [run for run in entry.runs if run.converged and run.epochs and seconds_of(run) is not None]
    if len(good) < FEWEST:
        return None
    told = distinct(good)
    enough = len(told) >= FEWEST
    known = told if enough else good
    times = [math.log(run.time_to_train_s or 1.0) for run in known]
    epochs = [math.log(run.epochs or 1.0) for run in known]
    spread = stdev(times)
    return VariationRow(
        application=entry.first.application or "-", entry=entry.name, runs=len(good), trajectories=len(told),
        time_sd=spread, epochs_sd=stdev(epochs) if enough else None, epoch_s_sd=stdev([epoch_log(run) for run in good]),
        explained=explained(times, epochs) if enough else None, score_sd=spread * olympic_error(len(known)),
        same_as="" if same is None else same.name, verified=NOT_VERIFIED if entry.is_own else "",
    )  # fmt: skip


def epoch_log(run: RunRecord) -> float:
    """The logarithm of the seconds of training and evaluation per epoch, with the first epoch as it was."""
    parts = seconds_of(run)
    return math.log((parts.epochs_total + parts.first) / (run.epochs or 1.0)) if parts is not None else math.nan


def explained(times: Sequence[float], epochs: Sequence[float]) -> float | None:
    """The share of the variance of times that a line in epochs explains: the adjusted square of the correlation, to
    which chance adds nothing in few runs, or 0 if that is negative. ``None`` where either does not vary.
    """
    if min(stdev(times), stdev(epochs)) < 1e-10:
        return None
    unexplained = (1 - correlation(times, epochs) ** 2) * (len(times) - 1) / (len(times) - 2)
    return max(0.0, 1 - unexplained)


def middle(rows: Sequence[VariationRow], name: str) -> float | None:
    """The median of a column over the entries that have it."""
    known = [value for row in rows if (value := getattr(row, name)) is not None]
    return median(known) if known else None
