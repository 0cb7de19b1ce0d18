"""All factors fitted to published entries: what every prediction starts from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from hpcbench.mlperf.published import published_runs
from hpcbench.prediction.entries import ModelEntry, model_entries
from hpcbench.prediction.epochs import EpochSpreads, fit_spreads
from hpcbench.prediction.factor import Factor, Parameters
from hpcbench.prediction.platforms import shipped_machines
from hpcbench.prediction.staging_and_evaluation import (
    data_staging_s,
    fit_data_staging,
    fit_epoch_jitter,
    fit_evaluation,
    fit_extras,
    full_speed_s,
    numbers,
)
from hpcbench.prediction.step_time import NEWEST, entry_case, fit_step_time, grow
from hpcbench.probability import student_draws

RUN_SPREAD = 0.024
"""Standard deviation of the logarithm of seconds per epoch between runs of one submission: the median over those of
MLPerf HPC v1.0 and v2.0."""


@dataclass(frozen=True)
class Spread:
    """A root mean square of logarithms, from few sites."""

    value: float
    sites: int
    """Its degrees of freedom: values of one site are alike."""

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """``count`` draws of Student's t with this spread."""
        return np.asarray(self.value * student_draws(rng, self.sites, count))


@dataclass(frozen=True)
class Fitted:
    """The factors, and how much systems scatter about them."""

    step: Factor
    data_staging: Factor
    evaluation: Factor
    epoch_jitter: Factor
    extras: Factor
    epochs: EpochSpreads
    growth: float
    """Root mean square of ln(predicted / measured) for a step's time at a larger size, from the smallest one's."""
    staging_growth: Spread
    """The same for a staging at another size, from one on the same system."""
    staging_repeat: Spread
    """The same for a staging at the same size, from one of the round before."""
    entries: tuple[ModelEntry, ...]
    """Entries of all rounds, for recipes."""


def fit(entries: Sequence[ModelEntry]) -> Fitted:
    """Fit all factors: times to tuned entries, epochs to all."""
    tuned = [entry for entry in entries if entry.tuned]
    step, data_staging = fit_step_time(tuned), fit_data_staging(tuned)
    grown, repeated = (staging_spread(data_staging, pairs) for pairs in (growth_pairs(tuned), round_pairs(tuned)))
    return Fitted(
        step, data_staging, fit_evaluation(tuned, step), fit_epoch_jitter(tuned),
        fit_extras(tuned), fit_spreads(entries),
        growth_spread(step, entries), grown, repeated, tuple(entries),
    )  # fmt: skip


def fit_published() -> Fitted:
    """Fit to the published runs that the suite ships."""
    return fit(model_entries(published_runs(), shipped_machines()))


def same_system(entry: ModelEntry) -> tuple[str, str, str, str, float]:
    """What entries of one system at several sizes have in common."""
    return entry.round, entry.application, entry.site, entry.division, entry.local_batch


def growth_pairs(entries: Sequence[ModelEntry]) -> list[tuple[ModelEntry, ModelEntry]]:
    """The smallest size of a system paired with each larger one: one round, application and local batch."""
    usable = sorted((entry for entry in entries if entry.platform is not None and entry.recipe), key=same_system)
    pairs = []
    for _, group in groupby(usable, key=same_system):
        sizes = sorted(group, key=lambda entry: entry.accelerators)
        pairs += [(sizes[0], other) for other in sizes[1:] if other.accelerators > sizes[0].accelerators]
    return pairs


def round_pairs(entries: Sequence[ModelEntry]) -> list[tuple[ModelEntry, ModelEntry]]:
    """Tuned entries of one system and size in both rounds."""

    def size(entry: ModelEntry) -> tuple[object, ...]:
        return entry.site, entry.application, entry.accelerators, entry.global_batch, entry.throughput

    tuned = [entry for entry in entries if entry.tuned]
    return [(old, new) for old in tuned for new in tuned if old.round < new.round and size(old) == size(new)]


def staging_spread(data_staging: Factor, pairs: Sequence[tuple[ModelEntry, ModelEntry]]) -> Spread:
    """How far a staging is from what the one of another entry says, by the model's ratio of both.

    Where no system staged twice, this is the model's own spread.
    """
    known = [(one, other) for one, other in pairs if one.stages_first and other.stages_first]
    if not known:
        return Spread(data_staging.spread, max(data_staging.sites, 1))
    parameters = data_staging.parameters()
    errors = []
    for one, other in known:
        logs = [math.log(modelled_staging_s(parameters, entry) / entry.data_staging_s) for entry in (one, other)]
        errors.append(logs[1] - logs[0])
    sites = len({one.site for one, _ in known})
    return Spread(math.sqrt(statistics.fmean(error**2 for error in errors)), sites)


def modelled_staging_s(parameters: Parameters, entry: ModelEntry) -> float:
    """Seconds of an entry's staging by the model."""
    newer = np.asarray(float(entry.round == NEWEST))
    return float(data_staging_s(parameters, numbers([entry])[0], newer, np.asarray(full_speed_s(entry))))


def grown_s(step: Factor, small: ModelEntry, large: ModelEntry) -> float:
    """The step time of ``large`` from that of ``small``; see ``grow``."""
    return float(grow(step.parameters(), small.step_s, entry_case(small), entry_case(large)))


def growth_spread(step: Factor, entries: Sequence[ModelEntry]) -> float:
    """See ``Fitted.growth``: over the pairs of all systems."""
    errors = [math.log(grown_s(step, small, large) / large.step_s) for small, large in growth_pairs(entries)]
    return math.sqrt(statistics.fmean(error**2 for error in errors)) if errors else RUN_SPREAD
