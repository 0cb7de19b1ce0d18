"""How well the model predicts published results that it was not fitted to, beside two trivial rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.epochs import entry_epochs
from hpcbench.prediction.fitted import Fitted, fit
from hpcbench.prediction.forecast import Forecast, Interval, forecast
from hpcbench.prediction.input_limits import input_limits
from hpcbench.prediction.step_time import NEWEST
from hpcbench.prediction.training import Training
from hpcbench.prediction.trivial_rules import Guess, same_step, scaled_result

Key = Callable[[ModelEntry], str]


@dataclass(frozen=True)
class Held:
    """An entry that was held out, and what was predicted for it without its site."""

    entry: ModelEntry
    forecast: Forecast


def training_of(entry: ModelEntry, fitted: Fitted, others: Sequence[ModelEntry]) -> Training:
    """The training of an entry, as it could have been described in advance."""
    assert entry.platform is not None
    return Training(
        entry.work, entry.platform, entry.nodes, entry.accelerators // entry.nodes, entry.global_batch, 1,
        entry.round == NEWEST, entry.train_samples, entry.validation_samples,
        entry_epochs(entry, others, fitted.epochs), entry.stages_first,
        input_limits=input_limits(entry.platform, entry.work, entry.nodes),
        runs=len(entry.epochs), instances=len(entry.epochs) if entry.throughput else 1,
    )  # fmt: skip


def leave_out(entries: Sequence[ModelEntry], key: Key) -> list[Held]:
    """Each tuned entry, predicted by a model that was fitted without all that share its ``key``."""
    held = []
    for name in sorted({key(entry) for entry in entries if entry.tuned}):
        others = [entry for entry in entries if key(entry) != name]
        fitted = fit(others)
        for entry in entries:
            if entry.tuned and key(entry) == name:
                held.append(Held(entry, forecast(fitted, training_of(entry, fitted, others))))
    return held


def by_site(entry: ModelEntry) -> str:
    """The site of an entry."""
    return entry.site


def by_organization(entry: ModelEntry) -> str:
    """Who submitted an entry."""
    return entry.organization


TRIVIAL: Mapping[str, Callable[[ModelEntry, Sequence[ModelEntry]], Guess]] = {
    "scaled result": scaled_result, "same step": same_step,
}  # fmt: skip
TAIL = 0.9
FACTORS = ("time to train", "seconds per epoch", "epochs", "staging", "step")


@dataclass(frozen=True)
class Row:
    """A factor, a predictor, and how far it was off over the cases that were held out."""

    what: str
    factor: str
    predictor: str
    n: int
    median: float
    tail: float
    """The 90th percentile; for growth, the largest."""
    inside: float | None = None
    """Share of the cases within the 80 % interval."""
    width: float | None = None
    """Median of the interval's width, as a fraction of the prediction."""
    goal: str = ""
    met: bool | None = None


def truth(entry: ModelEntry) -> dict[str, float]:
    """What was published, by factor."""
    values = (entry.time_s, entry.epoch_and_evaluation_s, entry.mean_epochs, entry.data_staging_s, entry.step_s)
    return dict(zip(FACTORS, values, strict=True))


def predicted(forecast_: Forecast) -> dict[str, Interval]:
    """What the model says, by factor."""
    values = (forecast_.time, forecast_.epoch, forecast_.epochs, forecast_.staging, forecast_.step)
    return dict(zip(FACTORS, values, strict=True))


def guessed(guess: Guess) -> dict[str, float]:
    """What a trivial rule says, by factor."""
    values = (guess.time_s, guess.epoch_s, guess.epochs, guess.data_staging_s, guess.step_s)
    return dict(zip(FACTORS, values, strict=True))


def model_row(what: str, factor: str, held: Sequence[Held], tail: float = TAIL) -> Row:
    """How far the model was off; ``tail`` is the share of the cases whose largest error is shown."""
    pairs = [(predicted(case.forecast)[factor], truth(case.entry)[factor]) for case in held]
    errors = np.abs([interval.central / value - 1 for interval, value in pairs])
    return Row(
        what, factor, "model", len(held), float(np.median(errors)), float(np.quantile(errors, tail)),
        float(np.mean([interval.holds(value) for interval, value in pairs])),
        float(np.median([interval.width for interval, _ in pairs])),
    )  # fmt: skip


def rule_row(what: str, factor: str, rule: str, held: Sequence[Held], entries: Sequence[ModelEntry], key: Key) -> Row:
    """How far a trivial rule was off."""
    errors = []
    for case in held:
        others = [entry for entry in entries if key(entry) != key(case.entry)]
        errors.append(abs(guessed(TRIVIAL[rule](case.entry, others))[factor] / truth(case.entry)[factor] - 1))
    return Row(what, factor, rule, len(held), float(np.median(errors)), float(np.quantile(errors, TAIL)))
