"""Seconds of a step: device, slowest rank, exposed communication. Fitted to tuned code on A100, rounds v1.0 and v2.0.

device = overhead (W0 / W)^exponent + efficiency b max(F / P, D / W), for local batch b, operations F and bytes D of a
sample, peak P and memory bandwidth W of an accelerator, and W0 of an A100 with 80 GB. Code of v2.0 takes exp(newer)
times that. A step takes device x slowest rank + exposed x all-reduce. Where the input is slower than the device, the
input counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.factor import Factor, Parameters, Prior, fit_factor
from hpcbench.prediction.messages import all_reduce_s
from hpcbench.prediction.platforms import Fact, Platform
from hpcbench.prediction.workload import Work, published_work
from hpcbench.probability import expected_largest

Floats = NDArray[np.float64]

A100_80_BYTES_PER_S = 2.039e12
A100_FLOP_PER_S = 312e12
NEWEST = "v2.0"
TINY_S = 1e-9
PRIORS = (
    Prior("overhead", 0.010, 1.0, per_application=True),
    Prior("efficiency", 1.0, 0.5, per_application=True),
    Prior("newer", 0.0, 0.5, log=False, per_application=True),
    Prior("exponent", 0.94, 0.3, log=False),
    Prior("exposed", 0.5, 0.5),
    Prior("latency", 20e-6, 1.0),
    Prior("jitter", 0.05, 0.7),
)
"""The exponent is that of CosmoFlow between the two kinds of A100 in v1.0; the others are wide."""


@dataclass(frozen=True)
class StepCase:
    """A step whose time is asked for; fields may be arrays of many cases."""

    application: NDArray[np.intp]
    """Number of the application among those of published rounds."""
    newer: Floats
    """1 for code of v2.0, 0 for that of v1.0."""
    local_batch: Floats
    roofline_s: Floats
    """The roofline's time of a sample."""
    memory_bytes_per_s: Floats
    peak_flop_per_s: Floats
    devices: Floats
    """Devices of a node."""
    nodes: Floats
    gradient_bytes: Floats
    link_bytes_per_s: Floats
    network_bytes_per_s: Floats

    def take(self, cases: NDArray[np.intp]) -> StepCase:
        """Some of many cases."""
        return StepCase(**{name: value[cases] for name, value in vars(self).items()})


def case_of(
    work: Work, platform: Platform, nodes: float, devices: float, local_batch: float, newer: bool,
    network: float | Floats | None = None, link: float | Floats | None = None,
) -> StepCase:  # fmt: skip
    """A case on ``devices`` of each of ``nodes`` nodes; ``network`` and ``link`` replace facts that are intervals.

    An unknown peak or memory bandwidth is taken as that of an A100: only ratios of device times, on a machine that was
    measured, are then used.
    """
    bandwidth = platform.memory_bytes_per_s if isfinite(platform.memory_bytes_per_s) else A100_80_BYTES_PER_S
    peak = platform.peak_flop_per_s if isfinite(platform.peak_flop_per_s) else A100_FLOP_PER_S
    values = (
        float(newer), local_batch, work.seconds_per_sample(peak, bandwidth), bandwidth, peak, devices, nodes,
        work.gradient_bytes, platform.link_bytes_per_s.central if link is None else link,
        platform.network_bytes_per_s.central if network is None else network,
    )  # fmt: skip
    number = list(published_work()).index(work.application)
    return StepCase(np.asarray(number), *(np.asarray(value, float) for value in values))


def device_s(parameters: Parameters, case: StepCase) -> Floats:
    """Device seconds of a typical rank."""
    case_parameters = {name: parameters[name][..., case.application] for name in ("overhead", "efficiency", "newer")}
    slower = (A100_80_BYTES_PER_S / case.memory_bytes_per_s) ** parameters["exponent"]
    total = case_parameters["overhead"] * slower + case_parameters["efficiency"] * case.local_batch * case.roofline_s
    return np.asarray(total * np.exp(case_parameters["newer"] * case.newer))


def jitter(parameters: Parameters, case: StepCase) -> Floats:
    """The time of the slowest rank over that of a typical one."""
    return slowest_rank(parameters["jitter"], case.devices * case.nodes)


def exposed_s(parameters: Parameters, case: StepCase) -> Floats:
    """Seconds of the all-reduce that a step waits for."""
    whole = all_reduce_s(case.gradient_bytes, case.devices, case.nodes, case.link_bytes_per_s,
                         case.network_bytes_per_s, parameters["latency"])  # fmt: skip
    return np.asarray(parameters["exposed"] * whole)


def step_s(parameters: Parameters, case: StepCase) -> Floats:
    """Seconds of a step whose input is ready."""
    return np.asarray(device_s(parameters, case) * jitter(parameters, case) + exposed_s(parameters, case))


def grow(parameters: Parameters, measured: float | Floats, small: StepCase, large: StepCase) -> Floats:
    """The time of a step at another number of nodes, from a step measured with the same local batch.

    The part that does not wait for messages grows with the slowest rank. It is taken as at least half of the step,
    whatever the model says about messages, since a machine may hide them better than others.
    """
    busy = np.maximum(measured - exposed_s(parameters, small), np.asarray(measured) / 2)
    waited = np.asarray(measured) - busy
    ratio = jitter(parameters, large) / jitter(parameters, small)
    messages = exposed_s(parameters, large) / np.maximum(exposed_s(parameters, small), TINY_S)
    return np.asarray(busy * ratio + np.where(exposed_s(parameters, small) > TINY_S, waited * messages,
                                              exposed_s(parameters, large)))  # fmt: skip


def entry_case(entry: ModelEntry) -> StepCase:
    """The case of a published entry."""
    assert entry.platform is not None
    return case_of(
        entry.work, entry.platform, entry.nodes, entry.accelerators / entry.nodes, entry.local_batch,
        entry.round == NEWEST,
    )  # fmt: skip


def single(case: StepCase) -> StepCase:
    """The case with one sample on each rank."""
    return StepCase(**{**vars(case), "local_batch": np.ones_like(case.local_batch)})


def stacked(cases: Sequence[StepCase]) -> StepCase:
    """Many cases as one with arrays."""
    return StepCase(**{name: np.array([getattr(case, name) for case in cases]) for name in vars(cases[0])})


def fit_step_time(entries: Sequence[ModelEntry]) -> Factor:
    """Fit the step times of published entries."""
    cases = stacked([entry_case(entry) for entry in entries])
    observed = np.log([entry.step_s for entry in entries])

    def model(parameters: Parameters, which: NDArray[np.intp]) -> Floats:
        return np.asarray(np.log(step_s(parameters, cases.take(which))))

    return fit_factor(PRIORS, len(published_work()), model, observed, [entry.site for entry in entries])


def drawn(fact: Fact, rng: np.random.Generator, count: int) -> Floats:
    """Draws of a fact: its number, or logarithms uniform between its ends."""
    if fact.known:
        return np.full(count, fact.low)
    return np.asarray(np.exp(rng.uniform(np.log(fact.low), np.log(fact.high), count)))


def slowest_rank(spread: ArrayLike, ranks: ArrayLike) -> Floats:
    """The time of a step over that of a typical rank where each waits for the slowest: the largest of N lognormals.

    ``spread`` is the standard deviation of the logarithm of a rank's time.
    """
    factor: Floats = np.exp(np.asarray(spread) * expected_largest(ranks))
    return factor
