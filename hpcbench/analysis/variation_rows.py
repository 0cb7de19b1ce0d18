"""How far the runs of an entry are apart, and what explains it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, stdev

from hpcbench.analysis.entry_runs import NOT_VERIFIED, EntryRuns, distinct
from hpcbench.analysis.run_seconds import seconds_of
from hpcbench.analysis.sheets import column, text
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results import units

FEWEST = 3
"""Runs from which a spread is told."""


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
        "square of the correlation of ln(time) and ln(epochs): the share of the variance that epochs explain",
        units.percent,
    )
    score_sd: float = column("of a score", "time_sd over the root of the runs: the noise of a mean", units.percent)
    verified: str = column("verified", "of own ones: not verified", text, page=False)


def variation_rows(entries: Sequence[EntryRuns]) -> list[VariationRow]:
    """A row for each entry with three runs of distinct trajectory, or three alike, which tell of seconds alone."""
    return [row for entry in entries if (row := variation_row(entry)) is not None]


def variation_row(entry: EntryRuns) -> VariationRow | None:
    """The spread of an entry; ``None`` for fewer than three runs."""
    good = [run for run in entry.runs if run.status == "success" and run.epochs and seconds_of(run) is not None]
    if len(good) < FEWEST:
        return None
    told = distinct(good)
    known = told if len(told) >= FEWEST else good
    times = [math.log(run.time_to_train_s or 1.0) for run in known]
    epochs = [math.log(run.epochs or 1.0) for run in known]
    spread = stdev(times)
    return VariationRow(
        entry.first.application or "-", entry.name, len(good), len(told), spread,
        stdev(epochs) if known is told else None, stdev([epoch_log(run) for run in good]),
        explained(times, epochs) if known is told else None, spread / math.sqrt(len(known)),
        NOT_VERIFIED if entry.own else "",
    )  # fmt: skip


def epoch_log(run: RunRecord) -> float:
    """The logarithm of the seconds of training and evaluation per epoch, the first as it was."""
    return math.log((sum(run.epochs_s) + sum(run.evaluations_s)) / (run.epochs or 1.0))


def explained(times: Sequence[float], epochs: Sequence[float]) -> float:
    """The share of the variance of times that a line in epochs explains; 0 where epochs or times do not vary."""
    n = len(times)
    a, b = [value - math.fsum(times) / n for value in times], [value - math.fsum(epochs) / n for value in epochs]
    both, first, second = (math.fsum(x * y for x, y in zip(*pair, strict=True)) for pair in ((a, b), (a, a), (b, b)))
    return 0.0 if first < 1e-20 or second < 1e-20 else both * both / (first * second)


def middle(rows: Sequence[VariationRow], name: str) -> float | None:
    """The median of a column over entries that tell it."""
    known = [value for row in rows if (value := getattr(row, name)) is not None]
    return median(known) if known else None
