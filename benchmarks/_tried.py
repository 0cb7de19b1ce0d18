"""Forms of the model that were tried and dropped: how far each is off, with one site left out, beside the model's own.

Each form changes one thing of ``hpcbench/prediction/step_time.py`` or ``staging_and_evaluation.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.factor import Parameters, Prior, most_probable, unpack
from hpcbench.prediction.staging_and_evaluation import (
    DATA_STAGING_PRIORS,
    EVALUATION_PRIORS,
    data_staging_s,
    evaluation_s,
    full_speed_s,
    numbers,
)
from hpcbench.prediction.step_time import (
    A100_80_BYTES_PER_S,
    NEWEST,
    PRIORS,
    StepCase,
    device_s,
    entry_case,
    exposed_s,
    fit_step_time,
    jitter,
    single,
    stacked,
)
from hpcbench.prediction.workload import published_work

Floats = NDArray[np.float64]
Seconds = Callable[[Parameters, NDArray[np.intp]], Floats]
"""Seconds of the cases with these numbers."""
Device = Callable[[Parameters, StepCase], Floats]

TAIL = 0.9
WITHOUT_POWER = (*(prior for prior in DATA_STAGING_PRIORS if prior.name != "power"), Prior("start", 10.0, 1.5))
MODEL = "the model"
EACH_ENTRY = "equal weight for each entry instead of each site"


def tried(entries: Sequence[ModelEntry]) -> list[dict[str, Any]]:
    """Median and 90th percentile of the errors of each form; of each factor, the model comes first."""
    tuned = [entry for entry in entries if entry.tuned]
    return [*step_forms(tuned), *staging_forms(tuned), *evaluation_forms(tuned)]


def step_forms(tuned: Sequence[ModelEntry]) -> list[dict[str, Any]]:
    """Forms of the device time, with the jitter and the messages of the model."""
    cases, observed = stacked([entry_case(entry) for entry in tuned]), np.array([entry.step_s for entry in tuned])

    def errors(device: Device, by_entry: bool = False) -> Floats:
        def seconds(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
            case = cases.take(which)
            return np.asarray(device(parameters, case) * jitter(parameters, case) + exposed_s(parameters, case))

        return left_out(PRIORS, seconds, observed, tuned, by_entry)

    return [
        row("step", MODEL, errors(device_s)),
        row("step", "an overhead that does not depend on the card", errors(with_exponent(0.0))),
        row("step", "an overhead in proportion to 1 / W", errors(with_exponent(1.0))),
        row("step", EACH_ENTRY, errors(device_s, by_entry=True)),
        row("step", "a change of code in the overhead alone", errors(changed(overhead=True))),
        row("step", "a change of code in the part for each sample alone", errors(changed(overhead=False))),
    ]


def with_exponent(exponent: float) -> Device:
    """The model's device time, whose overhead goes with this power of the memory's slowness."""
    return lambda parameters, case: device_s({**parameters, "exponent": np.asarray(exponent)}, case)


def changed(*, overhead: bool) -> Device:
    """Device time where newer code changes the overhead alone, or what a sample takes alone."""

    def seconds(parameters: Parameters, case: StepCase) -> Floats:
        own = {name: parameters[name][..., case.application] for name in ("overhead", "efficiency", "newer")}
        slower, newer = A100_80_BYTES_PER_S / case.memory_bytes_per_s, np.exp(own["newer"] * case.newer)
        fixed = own["overhead"] * slower ** parameters["exponent"] * (newer if overhead else 1.0)
        samples = own["efficiency"] * case.local_batch * case.roofline_s * (1.0 if overhead else newer)
        return np.asarray(fixed + samples)

    return seconds


def staging_forms(tuned: Sequence[ModelEntry]) -> list[dict[str, Any]]:
    """Forms of the staging. What it goes by is scaled to the mean of the model's, for which the priors are."""
    observed = np.array([entry.data_staging_s for entry in tuned])
    by_network = np.array([full_speed_s(entry) for entry in tuned])
    by_nodes = np.array([float(entry.work.landed_on_node(entry.nodes)) for entry in tuned])
    by_accelerators = by_nodes * np.array([entry.nodes / entry.accelerators for entry in tuned])
    application, newer = numbers(tuned), np.array([float(entry.round == NEWEST) for entry in tuned])

    def errors(size: Floats, by_entry: bool = False) -> Floats:
        scaled = size * np.exp(np.mean(np.log(by_network)) - np.mean(np.log(size)))

        def seconds(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
            return data_staging_s(parameters, application[which], newer[which], scaled[which])

        return left_out(DATA_STAGING_PRIORS, seconds, observed, tuned, by_entry)

    def start_and_rate(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        at_rate = parameters["level"][..., application[which]] * by_network[which]
        changed_code = np.exp(parameters["newer"][..., application[which]] * newer[which])
        return np.asarray((parameters["start"] + at_rate) * changed_code)

    return [
        row("staging", MODEL, errors(by_network)),
        row("staging", EACH_ENTRY, errors(by_network, by_entry=True)),
        row("staging", "by nodes instead of the network's full speed", errors(by_nodes)),
        row("staging", "by accelerators instead of the network's full speed", errors(by_accelerators)),
        row("staging", "a start and a rate instead of a power law", left_out(
            WITHOUT_POWER, start_and_rate, observed, tuned)),
    ]  # fmt: skip


def evaluation_forms(tuned: Sequence[ModelEntry]) -> list[dict[str, Any]]:
    """Forms of the evaluation."""
    timed = [entry for entry in tuned if entry.evaluation_s > 0]
    observed, cases = np.array([entry.evaluation_s for entry in timed]), stacked([entry_case(entry) for entry in timed])
    samples = np.array([entry.validation_samples for entry in timed])
    alone: dict[str, tuple[Floats, Floats]] = {}
    for site in {entry.site for entry in timed}:  # the device time, too, is that of a model without the site
        step = fit_step_time([entry for entry in tuned if entry.site != site]).parameters()
        alone[site] = device_s(step, single(cases)), device_s(step, cases) / cases.local_batch

    def errors(form: int) -> Floats:
        found = np.zeros(len(timed))
        for site, forms in alone.items():
            each_s = forms[form]

            def seconds(parameters: Parameters, which: NDArray[np.intp], each_s: Floats = each_s) -> Floats:
                return evaluation_s(parameters, cases.take(which), samples[which], each_s[which])

            here = [entry.site == site for entry in timed]
            found[here] = left_out(EVALUATION_PRIORS, seconds, observed, timed)[here]
        return found

    return [
        row("evaluation", MODEL, errors(0)),
        row("evaluation", "in proportion to the time of a training step", errors(1)),
    ]


def left_out(
    priors: Sequence[Prior], seconds: Seconds, observed: Floats, entries: Sequence[ModelEntry], by_entry: bool = False
) -> Floats:
    """Errors, as fractions, of cases whose site was not in the fit. ``by_entry``: whether all entries count alike."""
    sites, every = np.array([entry.site for entry in entries]), np.arange(len(entries))
    alike = every.astype(np.str_) if by_entry else sites

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        return np.asarray(np.log(seconds(parameters, which)))

    errors = np.zeros(len(entries))
    for site in sorted(set(sites.tolist())):
        out = every[sites == site]
        z, _ = most_probable(tuple(priors), len(published_work()), model, np.log(observed), alike, every[sites != site])
        errors[out] = np.abs(seconds(unpack(priors, z, len(published_work())), out) / observed[out] - 1)
    return errors


def row(factor: str, form: str, errors: Floats) -> dict[str, Any]:
    """A form of a factor, with the errors of its cases."""
    return {"factor": factor, "form": form, "n": len(errors), "median": float(np.median(errors)),
            "tail": float(np.quantile(errors, TAIL))}  # fmt: skip
