"""Seconds besides the steps: staging, evaluation, and what is done once. Fitted to published entries.

- data staging: level (V / (nodes x network) / 1 s)^power, for the dataset's bytes V and a node's network
- evaluation: one sample at a time on each rank, each 1 / faster of a training step of one sample
- epoch_jitter: what the mean epoch takes over the median one
- extras: a level
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.factor import Factor, Parameters, Prior, fit_factor
from hpcbench.prediction.step_time import NEWEST, StepCase, device_s, entry_case, single, stacked
from hpcbench.prediction.workload import published_work

Floats = NDArray[np.float64]

DATA_STAGING_PRIORS = (
    Prior("level", 50.0, 1.5, per_application=True),
    Prior("newer", 0.0, 0.7, log=False, per_application=True),
    Prior("power", 1.0, 0.5, log=False),
)
EVALUATION_PRIORS = (Prior("faster", 3.0, 0.7, per_application=True),)
EPOCH_JITTER_PRIORS = (Prior("epoch_jitter", 0.02, 1.0),)
LEAST_EPOCH_JITTER = 0.002
EXTRAS_PRIORS = (Prior("extras", 3.0, 1.5, per_application=True),)
LEAST_EXTRAS_S = 1.0
"""Times of a log that add up to less than the whole are within its resolution."""


def data_staging_s(
    parameters: Parameters, application: NDArray[np.intp], newer: Floats, full_speed_s: Floats
) -> Floats:
    """Seconds until the data are on the nodes; ``full_speed_s``: for what lands on a node at full network rate."""
    level = parameters["level"][..., application] * np.exp(parameters["newer"][..., application] * newer)
    return np.asarray(level * full_speed_s ** parameters["power"])


def full_speed_s(entry: ModelEntry) -> float:
    """Seconds of an entry's data at full network rate: each node lands its part of both splits."""
    assert entry.platform is not None
    return entry.work.landed_on_node(entry.nodes) / entry.platform.network_bytes_per_s.central


def fit_data_staging(entries: Sequence[ModelEntry]) -> Factor:
    """Fit how long data take to arrive."""
    application = numbers(entries)
    newer = np.array([float(entry.round == NEWEST) for entry in entries])
    at_full = np.array([full_speed_s(entry) for entry in entries])
    observed = np.log([entry.data_staging_s for entry in entries])

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        return np.asarray(np.log(data_staging_s(parameters, application[which], newer[which], at_full[which])))

    return fit_factor(DATA_STAGING_PRIORS, len(published_work()), model, observed, sites(entries))


def evaluation_s(parameters: Parameters, case: StepCase, validation_samples: int | Floats, single_s: Floats) -> Floats:
    """Seconds of an evaluation; ``single_s``: those of a training step with one sample on each rank."""
    share = validation_samples / (case.devices * case.nodes)
    return np.asarray(share * single_s / parameters["faster"][..., case.application])


def fit_evaluation(entries: Sequence[ModelEntry], step: Factor) -> Factor:
    """Fit how much less than a training step of one sample the evaluation of a sample takes."""
    timed = [entry for entry in entries if entry.evaluation_s > 0]
    cases = stacked([single(entry_case(entry)) for entry in timed])
    single_s = device_s(step.parameters(), cases)
    samples = np.array([entry.validation_samples for entry in timed])
    observed = np.log([entry.evaluation_s for entry in timed])

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        return np.log(evaluation_s(parameters, cases.take(which), samples[which], single_s[which]))

    return fit_factor(EVALUATION_PRIORS, len(published_work()), model, observed, sites(timed))


def fit_epoch_jitter(entries: Sequence[ModelEntry]) -> Factor:
    """Fit what the mean epoch takes over the median one, as a fraction of the latter."""
    observed = np.log([max(entry.epoch_s / entry.usual_epoch_s - 1, LEAST_EPOCH_JITTER) for entry in entries])

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        return np.asarray(np.log(np.full(len(which), parameters["epoch_jitter"])))

    return fit_factor(EPOCH_JITTER_PRIORS, len(published_work()), model, observed, sites(entries))


def fit_extras(entries: Sequence[ModelEntry]) -> Factor:
    """Fit what a run takes besides staging, epochs and evaluations."""
    application = numbers(entries)
    observed = np.log([max(entry.extras_s, LEAST_EXTRAS_S) for entry in entries])

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        return np.asarray(np.log(parameters["extras"][application[which]]))

    return fit_factor(EXTRAS_PRIORS, len(published_work()), model, observed, sites(entries))


def numbers(entries: Sequence[ModelEntry]) -> NDArray[np.intp]:
    """The number of each entry's application."""
    names = list(published_work())
    return np.array([names.index(entry.application) for entry in entries])


def sites(entries: Sequence[ModelEntry]) -> list[str]:
    """The site of each entry."""
    return [entry.site for entry in entries]
