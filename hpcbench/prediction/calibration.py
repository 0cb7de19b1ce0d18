"""What runs on a machine show about it: its own step time and staging replace the model's level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.factor import Parameters
from hpcbench.prediction.fitted import RUN_SPREAD, Fitted
from hpcbench.prediction.staging_and_evaluation import data_staging_s, full_speed_s
from hpcbench.prediction.step_time import StepCase, device_s, entry_case, exposed_s, jitter
from hpcbench.prediction.training import Training

Floats = NDArray[np.float64]


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

    def noise(self, fitted: Fitted, rng: np.random.Generator, count: int) -> Noise:
        """What remains unknown: for a calibrated machine the growth, for any other the site."""
        step = (
            np.exp(fitted.growth * rng.standard_normal(count)) if self.runs else np.exp(fitted.step.noise(rng, count))
        )
        data_staging = np.exp(fitted.data_staging.noise(rng, count) * (0.5 if self.staged else 1.0))
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

    def device(self, parameters: Parameters, case: StepCase, network: Floats, link: Floats) -> Floats | None:
        """Seconds of a pass of a typical rank, from the measured step; ``None`` without one.

        ``network`` and ``link`` are the ratios of a draw to the central fact, for facts that are intervals.
        """
        if not self.runs:
            return None if self.kernels is None else self.kernels.device_s(case)
        ratios_by_batch: dict[float, list[Floats]] = {}
        for run in self.runs:
            links = {"network_bytes_per_s": run.case.network_bytes_per_s * network,
                     "link_bytes_per_s": run.case.link_bytes_per_s * link}  # fmt: skip
            run_case = StepCase(**{**vars(run.case), **links})
            busy = np.maximum(run.step_s - exposed_s(parameters, run_case), run.step_s / 2) / jitter(
                parameters, run_case
            )
            ratio = np.log(busy / run.accumulation) - np.log(self.modelled(parameters, run_case))
            ratios_by_batch.setdefault(float(run.case.local_batch), []).append(ratio)
        means = {batch: np.mean(ratios, axis=0) for batch, ratios in ratios_by_batch.items()}
        return np.asarray(np.exp(between(means, float(case.local_batch))) * self.modelled(parameters, case))

    def modelled(self, parameters: Parameters, case: StepCase) -> Floats:
        """Device seconds by the model, as before the machine was measured."""
        return device_s(parameters, case) if self.kernels is None else self.kernels.device_s(case)

    def data_staging(
        self, modelled: Floats, training: Training, parameters: Parameters, number: NDArray[np.intp]
    ) -> Floats:
        """Seconds of staging, at the level that the runs had."""
        staged = self.staged
        if not staged:
            return modelled
        newer = np.asarray(float(training.newer))
        levels = [
            np.log(run.data_staging_s or 1.0)
            - np.log(data_staging_s(parameters, number, newer, np.asarray(run.full_speed_s)))
            for run in staged
        ]
        return np.asarray(modelled * np.exp(np.mean(levels, axis=0)))


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
