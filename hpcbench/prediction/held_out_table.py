"""The table of how well the model predicts: each factor on its own, the trivial rules beside it, and the goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hpcbench.prediction.calibration import Calibration, measured_entry
from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.fitted import Fitted, fit, grown_s, growth_pairs, round_pairs
from hpcbench.prediction.forecast import forecast
from hpcbench.prediction.held_out import (
    FACTORS,
    TAIL,
    TRIVIAL,
    Held,
    Row,
    by_organization,
    by_site,
    leave_out,
    model_row,
    rule_row,
    training_of,
)  # fmt: skip

APART = "horeka"
"""A system whose steps get shorter as its size grows, which no model of messages explains."""
SITE_GOALS = {"time to train": (0.12, 0.30), "seconds per epoch": (0.12, None)}
"""Median and 90th percentile."""
REFERENCE_GOAL, GROWTH_GOAL = (0.05, None), (0.04, 0.10)
INSIDE_GOAL = (0.7, 0.9)


@dataclass(frozen=True)
class Pair:
    """A system at two sizes, and how far its larger step was predicted from its smaller one."""

    small: ModelEntry
    large: ModelEntry
    model: float
    """Error of the model, as a fraction of the truth."""
    no_change: float


@dataclass(frozen=True)
class Judgement:
    """The whole table, and what it is made of."""

    rows: tuple[Row, ...]
    held: tuple[Held, ...]
    """With one site left out."""
    pairs: tuple[Pair, ...]

    @property
    def experimental(self) -> list[str]:
        """Where the model is no better than a trivial rule; it is called experimental there."""
        no_better = []
        for row in self.rows:
            beside = [other for other in self.rows if (other.what, other.factor) == (row.what, row.factor)]
            if row.predictor == "model" and any(other.median <= row.median for other in beside if other is not row):
                no_better.append(f"{row.what}: {row.factor}")
        return no_better

    @property
    def worse_at_worst(self) -> list[str]:
        """Where the model's 90th percentile, or its largest error, exceeds a trivial rule's."""
        worse = []
        for row in self.rows:
            beside = [other for other in self.rows if (other.what, other.factor) == (row.what, row.factor)]
            if row.predictor == "model" and any(other.tail < row.tail for other in beside if other is not row):
                worse.append(f"{row.what}: {row.factor}")
        return worse


def judge(entries: Sequence[ModelEntry]) -> Judgement:
    """Predict every entry without its site, every larger size from the smallest, and v2.0 from v1.0."""
    held = leave_out(entries, by_site)
    organizations = leave_out(entries, by_organization)
    pairs = grown_pairs(entries)
    rows = [
        *site_rows(held, entries), *own_factor_rows(held),
        *factor_rows("one organization left out", organizations, entries, by_organization),
        *growth_rows(pairs), *calibrated_rows(entries), *round_rows(entries),
    ]  # fmt: skip
    return Judgement(tuple(rows), tuple(held), tuple(pairs))


def site_rows(held: Sequence[Held], entries: Sequence[ModelEntry]) -> list[Row]:
    """One site left out: every factor; epochs of reference recipes; without trajectories that were run many times."""
    rows = []
    for row in factor_rows("one site left out", held, entries, by_site):
        goals = SITE_GOALS.get(row.factor)
        rows.append(against(row, *goals) if goals and row.predictor == "model" else row)
    reference = [case for case in held if case.forecast.training.epochs.basis == "reference point"]
    what = "one site left out, reference recipe"
    rows.append(against(model_row(what, "epochs", reference), *REFERENCE_GOAL))
    rows += [rule_row(what, "epochs", rule, reference, entries, by_site) for rule in TRIVIAL]
    several = [case for case in held if not case.entry.one_trajectory]
    rows.append(model_row("one site left out, no trajectory twice", "time to train", several))
    return rows


def factor_rows(what: str, held: Sequence[Held], entries: Sequence[ModelEntry], key: object) -> list[Row]:
    """The model and the trivial rules, factor by factor."""
    group = by_site if key is by_site else by_organization
    rows = []
    for factor in FACTORS:
        rows.append(model_row(what, factor, held))
        rows += [rule_row(what, factor, rule, held, entries, group) for rule in TRIVIAL]
    return rows


def against(row: Row, median: float, tail: float | None) -> Row:
    """The row with its goal, and whether it is met."""
    words = f"{median:.0%}" + (f", {tail:.0%}" if tail is not None else "")
    met = row.median <= median and (tail is None or row.tail <= tail)
    return replace(row, goal=words.replace("%", " %"), met=met)


def own_factor_rows(held: Sequence[Held]) -> list[Row]:
    """Time to train where one factor is known: what the others leave."""
    rows = []
    for name, known in (("staging", {"staging"}), ("epochs", {"epochs"}), ("seconds per epoch", {"epoch"}),
                        ("all three", {"staging", "epochs", "epoch"})):  # fmt: skip
        errors = np.abs([composed(case, known) / case.entry.time_s - 1 for case in held])
        rows.append(Row(f"one site left out, {name} as measured", "time to train", "model", len(held),
                         float(np.median(errors)), float(np.quantile(errors, TAIL))))  # fmt: skip
    return rows


def composed(case: Held, known: set[str]) -> float:
    """The time of an entry from the forecast, with the factors in ``known`` as they were."""
    entry, predicted = case.entry, case.forecast
    epochs = entry.mean_epochs if "epochs" in known else predicted.epochs.central
    epoch = entry.epoch_and_evaluation_s if "epoch" in known else predicted.epoch.central
    staging = predicted.parts["staging"]
    if "staging" in known:
        staging = entry.data_staging_s if entry.stages_first else max(entry.data_staging_s - entry.epoch_s, 0.0)
    return staging + epochs * epoch + predicted.parts["extras"] + predicted.parts["last instance"]


def grown_pairs(entries: Sequence[ModelEntry]) -> list[Pair]:
    """The larger sizes of systems, predicted from their smallest one by a model without their site."""
    fitted: dict[str, Fitted] = {}
    pairs = []
    for small, large in growth_pairs(entries):
        if small.site not in fitted:
            fitted[small.site] = fit([entry for entry in entries if entry.site != small.site])
        model = grown_s(fitted[small.site].step, small, large) / large.step_s - 1
        pairs.append(Pair(small, large, model, small.step_s / large.step_s - 1))
    return pairs


def growth_rows(pairs: Sequence[Pair]) -> list[Row]:
    """A larger size of the same system, beside no change of the step time; one system is kept apart."""
    others = [pair for pair in pairs if pair.small.site != APART]
    alike = [pair for pair in others if pair.small.throughput == pair.large.throughput]
    apart = [pair for pair in pairs if pair.small.site == APART]
    what = "same system, larger"
    rows = []
    for name, chosen in ((what, others), (f"{what}, both of one mode", alike), (f"{what}, HoreKa", apart)):
        for predictor in ("model", "no change"):
            errors = np.abs([pair.model if predictor == "model" else pair.no_change for pair in chosen])
            row = Row(name, "step", predictor, len(chosen), float(np.median(errors)), float(np.max(errors)))
            rows.append(against(row, *GROWTH_GOAL) if name == what and predictor == "model" else row)
    return rows


def calibrated_rows(entries: Sequence[ModelEntry]) -> list[Row]:
    """Larger sizes with the smallest one as the run that calibrates, by a model without their site."""
    held = []
    for small, large in growth_pairs([entry for entry in entries if entry.tuned]):
        others = [entry for entry in entries if entry.site != large.site]
        fitted = fit(others)
        calibration = Calibration((measured_entry(small),))
        held.append(Held(large, forecast(fitted, training_of(large, fitted, others), calibration)))
    return [model_row("same system, larger, one run first", factor, held, 1.0) for factor in FACTORS]


def round_rows(entries: Sequence[ModelEntry]) -> list[Row]:
    """Entries of v2.0 from the same system's of v1.0 at the same size, by a model without the site."""
    errors: dict[tuple[str, str], list[float]] = {}
    for old, new in round_pairs(entries):
        others = [entry for entry in entries if entry.site != new.site]
        fitted = fit(others)
        predicted = forecast(fitted, training_of(new, fitted, others), Calibration((measured_entry(old),)))
        for factor, model, rule in (
            ("time to train", predicted.time.central / new.time_s, old.time_s / new.time_s),
            ("step", predicted.step.central / new.step_s, old.step_s / new.step_s),
        ):
            errors.setdefault((factor, "model"), []).append(abs(model - 1))
            errors.setdefault((factor, "previous result"), []).append(abs(rule - 1))
    return [
        Row("same system, next round", factor, predictor, len(values), float(np.median(values)), float(np.max(values)))
        for (factor, predictor), values in errors.items()
    ]
