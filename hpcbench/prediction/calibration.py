"""What runs on a machine show about it: its own step time and staging replace the model's level."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.factor import Parameters
from hpcbench.prediction.fitted import RUN_SPREAD, Fitted
from hpcbench.prediction.message_time import MessageTime
from hpcbench.prediction.staging_and_evaluation import data_staging_s, full_speed_s
from hpcbench.prediction.step_time import StepCase, device_s, entry_case, exposed_s, jitter

Floats = NDArray[np.float64]

ALIKE = 0.01
"""Stagings of as much on each node, within this share, are of one size."""


class KernelTime(Protocol):
    """Seconds of a pass by its kernels."""

    def device_s(self, case: StepCase) -> Floats:
        """Seconds of a typical rank, at the case's local batch, peak and memory bandwidth."""


@dataclass(frozen=True)
class Noise:
    """Factors by which a site deviates from the model: draws of them, or ones."""

    step: Floats
    data_staging: Floats
    evaluation: Floats
    epoch_jitter: Floats
    extras: Floats


@dataclass(frozen=True)
class Measured:
    """What one run, or several of one kind, measured."""

    case: StepCase
    """The case of its step, with central links."""
    step_s: float
    accumulation: int
    data_staging_s: float | None
    full_speed_s: float
    """Seconds of its staging at the full rate of the network."""
    watts: float | None = None
    """Power of a node over the whole run; ``None`` where it was not measured."""


@dataclass(frozen=True)
class Calibration:
    """Runs on the machine; without any, the model as it is fitted."""

    runs: tuple[Measured, ...] = ()
    kernels: KernelTime | None = None
    """Device time by kernels, from a characterisation; ``None``: that of tuned code, as it was published."""
    messages: MessageTime | None = None
    """Messages of a characterisation on several ranks; ``None``: those that are fitted to published entries."""

    def noise(self, fitted: Fitted, rng: np.random.Generator, count: int, full_speed_s: float = 0.0) -> Noise:
        """What remains unknown: for a calibrated machine the growth, for any other the site.

        ``full_speed_s`` is that of the staging: a run of the same size tells more of it than one of another.
        """
        step = (
            np.exp(fitted.growth * rng.standard_normal(count)) if self.runs else np.exp(fitted.step.noise(rng, count))
        )
        if self.staged:
            alike = any(math.isclose(run.full_speed_s, full_speed_s, rel_tol=ALIKE) for run in self.staged)
            data_staging = np.exp((fitted.staging_repeat if alike else fitted.staging_growth).draw(rng, count))
        else:
            data_staging = np.exp(fitted.data_staging.noise(rng, count))
        run_factor = np.exp(RUN_SPREAD * rng.standard_normal(count))
        return Noise(
            step * run_factor, data_staging, np.exp(fitted.evaluation.noise(rng, count)),
            np.exp(fitted.epoch_jitter.noise(rng, count)), np.exp(fitted.extras.noise(rng, count)),
        )  # fmt: skip

    @property
    def watts(self) -> float | None:
        """Power of a node, the mean over the runs that measured it."""
        known = [run.watts for run in self.runs if run.watts is not None]
        return sum(known) / len(known) if known else None

    @property
    def staged(self) -> list[Measured]:
        """Runs that staged."""
        return [run for run in self.runs if run.data_staging_s]

    def levels(
        self, step: Parameters, data_staging: Parameters, number: NDArray[np.intp], newer: bool,
        network: Floats, link: Floats,
    ) -> Levels:  # fmt: skip
        """How far the runs are from what the model says for them, with parameters of ``step`` and ``data_staging``.

        ``number`` is that of the application. ``network`` and ``link`` are the ratios of a draw to the central fact,
        for facts that are intervals.
        """
        by_batch: dict[float, list[Floats]] = {}
        for run in self.runs:
            links = {"network_bytes_per_s": run.case.network_bytes_per_s * network,
                     "link_bytes_per_s": run.case.link_bytes_per_s * link}  # fmt: skip
            case = StepCase(**{**vars(run.case), **links})
            device = modelled_s(step, case, self.kernels)
            waited = waited_s(step, case, self.messages, device)
            busy = np.maximum(run.step_s - waited, run.step_s / 2) / jitter(step, case)
            level = np.log(busy / run.accumulation) - np.log(device)
            by_batch.setdefault(float(run.case.local_batch), []).append(level)
        staged = [
            np.log(run.data_staging_s or 1.0)
            - np.log(data_staging_s(data_staging, number, np.asarray(float(newer)), np.asarray(run.full_speed_s)))
            for run in self.staged
        ]
        means = {batch: np.asarray(np.mean(levels, axis=0)) for batch, levels in by_batch.items()}
        return Levels(means, np.asarray(np.mean(staged, axis=0)) if staged else None, self.kernels, self.messages)


@dataclass(frozen=True)
class Levels:
    """How far a machine is from the model, in logarithms of measured over modelled seconds.

    A level is inferred once, from the machine as it was measured; a change of the machine applies to the model alone.
    """

    device: Mapping[float, Floats]
    """Corrections of the device time, by local batch; empty without runs."""
    data_staging: Floats | None
    """Correction of the staging; ``None`` where no run staged."""
    kernels: KernelTime | None = None
    messages: MessageTime | None = None

    def device_s(self, parameters: Parameters, case: StepCase) -> Floats | None:
        """Seconds of a pass of a typical rank; ``None`` where neither runs nor kernels tell."""
        if not self.device:
            return None if self.kernels is None else self.kernels.device_s(case)
        level = between(self.device, float(case.local_batch))
        return np.asarray(np.exp(level) * modelled_s(parameters, case, self.kernels))

    def staging_s(self, modelled: Floats) -> Floats:
        """Seconds of staging, where the model says ``modelled``."""
        return modelled if self.data_staging is None else np.asarray(modelled * np.exp(self.data_staging))


def modelled_s(parameters: Parameters, case: StepCase, kernels: KernelTime | None) -> Floats:
    """Device seconds by the model, as before the machine was measured."""
    return device_s(parameters, case) if kernels is None else kernels.device_s(case)


def waited_s(
    parameters: Parameters, case: StepCase, messages: MessageTime | None, device: Floats, latency: Floats | float = 1.0
) -> Floats:
    """Seconds that a step waits for messages: as they were characterised over such a link, or else as fitted.

    ``device`` is the seconds of a pass; ``latency`` a ratio to the characterised one.
    """
    if messages is None or not messages.covers(float(case.nodes)):
        return exposed_s(parameters, case)
    return messages.exposed_s(case, device, latency)


def between(values: Mapping[float, Floats], batch: float) -> Floats:
    """The value at a local batch: that of the nearest measured one, or between two of them, linear in logarithms."""
    batches = sorted(values)
    if batch <= batches[0] or len(batches) == 1:
        return values[batches[0]]
    for low, high in pairwise(batches):
        if batch <= high:
            part = np.log(batch / low) / np.log(high / low)
            return np.asarray((1 - part) * values[low] + part * values[high])
    return values[batches[-1]]


def measured_entry(entry: ModelEntry) -> Measured:
    """What a published entry shows about its machine."""
    return Measured(
        entry_case(entry), entry.step_s, 1, entry.data_staging_s if entry.stages_first else None, full_speed_s(entry)
    )
