"""A convergence study as plain text that fits in 100 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from hpcbench.results import units
from hpcbench.results.tables import WIDTH, table
from hpcbench.study.definition import Study
from hpcbench.study.epoch_run import LEAST_BATCHES
from hpcbench.study.plan import (
    all_runs,
    all_searches,
    geometry,
    grid,
    left,
    points,
    rate,
    row_search,
    searches,
)
from hpcbench.study.results import Row, runs_needed, series_to_fit
from hpcbench.study.run_status import RunStatus
from hpcbench.study.schedule_notes import schedule_notes
from hpcbench.study.search_notes import rates_tried, search_notes
from hpcbench.study.seed_effect import seed_notes
from hpcbench.study.seed_spread import spread

FEW_EPOCHS = 3
"""A target that is met earlier says little about the training."""

RIGHT = ("batch", "ranks", "rate", "search", "seeds", "left", "epochs", "sd/mean", "n", "samples", "steps", "time")


def plan_table(study: Study, statuses: Mapping[str, RunStatus]) -> str:
    """What will run: a line per row with its rates and how many runs are left."""
    sharded = study.placements != ("replicate",)
    rows, searches_by_optimizer = [], all_searches(study, statuses)
    for point, count in left(study, statuses):
        ranks, local = geometry(study, point)
        search = row_search(study, point, searches_by_optimizer)
        chosen = search.choice.multiplier
        rates = "to be chosen" if chosen is None else units.significant(rate(study, point, chosen))
        if searches(study, point) and chosen is None:
            rates = rates_tried(study, point, searches_by_optimizer[point.optimizer].window)
        cells = [f"{point.batch:,}", f"{ranks:,} x {local}", point.optimizer, point.placement]
        cells += [point.source or "-", rates, str(len(search.trials) + search.later or "-")]
        cells += [str(study.seeds), str(count)]
        rows.append(cells)
    headers = ["batch", "ranks", "optimizer", "placement", "borrowed", "rate", "search", "seeds", "left"]
    drop = {name for name, shown in (("placement", sharded), ("borrowed", bool(study.borrow))) if not shown}
    return _table(headers, rows, drop)


def results_table(rows: Sequence[Row]) -> str:
    """A line per row of the study: how many runs reached the target, and after what epochs, samples, steps and time."""
    lines = []
    for row in rows:
        epochs = row.epochs
        cells = [f"{row.point.batch:,}", row.label, units.significant(row.rate)]
        cells += [row.rate_from + ("*" if row.at_edge else ""), reached_words(row)]
        cells += [units.significant(mean(epochs)), ratio(epochs), units.integer(runs_needed(epochs, row.step))]
        cells += [units.integer(mean(row.values("samples"))), units.integer(mean(row.values("steps")))]
        lines.append([*cells, short(mean(row.times))])
    headers = ["batch", "series", "rate", "by", "reached", "epochs", "sd/mean", "n", "samples", "steps", "time"]
    return table(headers, lines, right=RIGHT)


def reached_words(row: Row) -> str:
    """How many of the runs that are done reached the target, and how many are left: ``3 of 3``, ``1 of 2 +1``."""
    if row.nothing_to_borrow or row.choice.blocked:
        return "not run"
    waiting = row.left
    repeats = "=" if row.copies else ""
    return f"{len(row.epochs)} of {len(row.distinct) - waiting}{repeats}" + (f" +{waiting}" if waiting else "")


def mean(values: Sequence[float]) -> float | None:
    """The mean of the values; ``None`` if there are none."""
    return fmean(values) if values else None


def ratio(values: list[float]) -> str:
    """Standard deviation over mean, as in a table."""
    seed_spread = spread(values)
    return units.MISSING if seed_spread is None else f"{seed_spread:.3f}"


def short(seconds: float | None) -> str:
    """A time for a narrow column: ``48 s``, ``3.2 min``, ``14 h``."""
    if seconds is None:
        return units.MISSING
    unit, length = ("s", 1) if seconds < 99.5 else ("min", 60) if seconds < 99.5 * 60 else ("h", 3600)
    return f"{seconds / length:.2g} {unit}" if seconds < 99.5 * 3600 else f"{seconds / length:.0f} {unit}"


def notes(study: Study, rows: Sequence[Row]) -> list[str]:
    """What a reader must know in addition to the table: rule, search and budget of the rates, and lower bounds."""
    same = {rate.words() for rate in study.rates.values()}
    rates = "; ".join(f"{name} {rate.words()}" for name, rate in study.rates.items())
    sentences = [f"Rates by rule: {rates}." if len(same) > 1 or len(study.rates) > 1 else f"Rate by rule: {rates}."]
    sentences += search_notes(study, rows)
    if any(row.at_edge for row in rows):
        sentences.append("* the best rate is at the edge of the search, so a better one may lie outside it.")
    if any(row.epochs and not row.all_reached for row in rows):
        sentences.append(
            "Where some runs missed the target, means are of those that reached it: too good. Fits count all runs."
        )
    sentences.append(
        "sd/mean: standard deviation over mean of the epochs; n: runs whose mean is known to 5 %, unless epochs are "
        "apart by less than their rounding to evaluations."
    )
    sentences += early_notes(rows) + copy_notes(rows) + no_fit_notes(rows) + seed_notes(study, rows)
    if any(row.point.placement != "replicate" for row in rows):
        sentences.append(
            f"Sharded, reshuffled: {study.nodes} nodes have samples of their own, for the whole run or for one epoch."
        )
    if any(row.left for row in rows):
        sentences.append("+1: the number of runs of the row that are left.")
    sentences += schedule_notes(study)
    if study.borrow:
        sentences.append("Borrowed: the rate chosen at that batch, or that preset's optimizer and schedule, unchanged.")
    return sentences


def early_notes(rows: Sequence[Row]) -> list[str]:
    """A warning if the target comes so early that only the beginning of the training is compared."""
    early = [row for row in rows if any(epochs < FEW_EPOCHS for epochs in row.epochs)]
    if not early:
        return []
    where = ", ".join(f"{row.label} at {row.point.batch:,}" for row in early)
    return [
        f"Warning: runs met the target in fewer than {FEW_EPOCHS} epochs ({where}). They tell of the start of a "
        "training, with its warm-up; a stricter target tells more."
    ]


def no_fit_notes(rows: Sequence[Row]) -> list[str]:
    """Which series have no fit, and why."""
    unfitted = [
        f"{label} ({units.counted(reached, 'batch', 'batches')})"
        for label, (_, reached) in series_to_fit(rows).items()
        if reached < LEAST_BATCHES
    ]
    if not unfitted:
        return []
    return [f"No fit for {', '.join(unfitted)}: it takes {LEAST_BATCHES} batches at which runs reached the target."]


def copy_notes(rows: Sequence[Row]) -> list[str]:
    """A note on which runs are copies of others."""
    copies = {name: original for row in rows for name, original in row.copies.items()}
    if not copies:
        return []
    name, original = next(iter(copies.items()))
    more = f" and {len(copies) - 1} more" if len(copies) > 1 else ""
    return [
        f"= runs that trained as others to the last digit ({name} as {original}{more}): they are one observation, are "
        "not compared with each other, and count once in a row."
    ]


def failures(study: Study, statuses: Mapping[str, RunStatus]) -> list[tuple[str, str, str]]:
    """Every run that is done and did not reach the target: name, status, reason."""
    states = [(run.name, statuses.get(run.name, RunStatus("absent"))) for run in all_runs(study, statuses)]
    return [(name, state.status, state.reason) for name, state in states if state.final and state.status != "reached"]


def counts(study: Study, statuses: Mapping[str, RunStatus]) -> Counter[str]:
    """Numbers of runs by status; ``left`` are those still to be made."""
    done: Counter[str] = Counter(
        state.status
        for run in all_runs(study, statuses)
        if (state := statuses.get(run.name, RunStatus("absent"))).final
    )
    done["left"] = sum(count for _, count in left(study, statuses))
    return done


def size(study: Study) -> str:
    """The size of the matrix, in words."""
    rows = points(study)
    searching = sum(searches(study, point) for point in rows)
    fewest, most = (grid(study).fewest_runs, grid(study).most_runs) if searching else (0, 0)
    runs, more = searching * fewest, searching * (most - fewest)
    words = (
        f"{study.application} {study.preset}: {units.counted(len(rows), 'row')} x {units.counted(study.seeds, 'seed')}"
        + (f" + {runs} runs that choose rates" if searching else "")
        + f" = {units.counted(len(rows) * study.seeds + runs, 'run')}"
        + (f", up to {more} more if searches widen" if more else "")
    )
    return textwrap.fill(words, WIDTH, subsequent_indent="  ")


def _table(headers: list[str], rows: list[list[str]], drop: set[str]) -> str:
    keep = [index for index, name in enumerate(headers) if name not in drop]
    kept_rows = [[row[index] for index in keep] for row in rows]
    return table([headers[index] for index in keep], kept_rows, right=RIGHT)
