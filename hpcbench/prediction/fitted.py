"""All factors fitted to published entries: what every prediction starts from."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hpcbench.mlperf.published import published_runs
from hpcbench.prediction.entries import ModelEntry, model_entries
from hpcbench.prediction.epochs import EpochSpreads, fit_spreads
from hpcbench.prediction.factor import Factor
from hpcbench.prediction.platforms import shipped_machines
from hpcbench.prediction.staging_and_evaluation import fit_data_staging, fit_epoch_jitter, fit_evaluation, fit_extras
from hpcbench.prediction.step_time import entry_case, fit_step_time, grow

RUN_SPREAD = 0.024
"""Standard deviation of the logarithm of seconds per epoch between runs of one submission: the median over those of
MLPerf HPC v1.0 and v2.0."""


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
    entries: tuple[ModelEntry, ...]
    """Entries of all rounds, for recipes."""


def fit(entries: Sequence[ModelEntry]) -> Fitted:
    """Fit all factors: times to tuned entries, epochs to all."""
    tuned = [entry for entry in entries if entry.tuned]
    step = fit_step_time(tuned)
    return Fitted(
        step, fit_data_staging(tuned), fit_evaluation(tuned, step), fit_epoch_jitter(tuned),
        fit_extras(tuned), fit_spreads(entries),
        growth_spread(step, entries), tuple(entries),
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


def grown_s(step: Factor, small: ModelEntry, large: ModelEntry) -> float:
    """The step time of ``large`` from that of ``small``; see ``grow``."""
    return float(grow(step.parameters(), small.step_s, entry_case(small), entry_case(large)))


def growth_spread(step: Factor, entries: Sequence[ModelEntry]) -> float:
    """See ``Fitted.growth``: over the pairs of all systems."""
    errors = [math.log(grown_s(step, small, large) / large.step_s) for small, large in growth_pairs(entries)]
    return math.sqrt(statistics.fmean(error**2 for error in errors)) if errors else RUN_SPREAD
