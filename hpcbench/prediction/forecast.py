"""The time to solution of a training: its parts, which add up to it, and the interval, by simulation.

T = staging + E (steps (max(device, input) x slowest rank + exposed messages) (1 + epoch jitter) + evaluation)
+ extras, for E epochs. Jitter is what the slowest rank and epoch jitter add. The parts are those of the most probable
parameters; the interval comes from draws of every parameter, of a new site's deviation from the model, of seeds and of
unknown facts. For several instances, the time is that of the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpcbench.prediction.calibration import Calibration, Levels, Noise, waited_s
from hpcbench.prediction.factor import Parameters
from hpcbench.prediction.fitted import RUN_SPREAD, Fitted
from hpcbench.prediction.input_limits import InputDraws, InputLimits
from hpcbench.prediction.planned_staging import SPREAD as PLAN_SPREAD
from hpcbench.prediction.staging_and_evaluation import data_staging_s, evaluation_s
from hpcbench.prediction.step_time import StepCase, case_of, device_s, drawn, jitter, single
from hpcbench.prediction.training import Training
from hpcbench.prediction.workload import published_work
from hpcbench.probability import expected_largest, largest_draws

Floats = NDArray[np.float64]

DRAWS = 4000
SEED = 19
LOW, HIGH = 0.1, 0.9
PARTS = ("staging", "device", "input", "jitter", "messages", "evaluation", "extras", "last instance")
"""In the order in which they add up."""


@dataclass(frozen=True)
class Interval:
    """A number and the 80 % interval in which it is expected."""

    central: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Width of the interval, as a fraction of the number."""
        return (self.high - self.low) / self.central

    def holds(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Forecast:
    """What is predicted for a training. Times are in seconds."""

    training: Training
    time: Interval
    parts: Mapping[str, float]
    """By the names of ``PARTS``; they add up to ``time.central``."""
    intervals: Mapping[str, Interval]
    """80 % interval of each part."""
    step: Interval
    epoch: Interval
    """An epoch with its evaluation."""
    epochs: Interval
    staging: Interval
    """Seconds until all data are on the nodes, whether or not training waits for them."""


@dataclass(frozen=True)
class Draws:
    """Parameters and noise of a simulation; for the central values, numbers without noise."""

    step: Parameters
    data_staging: Parameters
    evaluation: Parameters
    epoch_jitter: Parameters
    extras: Parameters
    noise: Noise
    epochs: Floats
    network: Floats
    link: Floats
    latency: Floats
    """Latency of a message over the characterised one."""
    planned_staging: Floats | None
    """Seconds of the staging by its plan; ``None`` where the fit tells them."""
    input: InputDraws | None
    """``None`` where the rate of the input is known, or taken to be hidden."""


def forecast(fitted: Fitted, training: Training, calibration: Calibration | None = None) -> Forecast:
    """Predict a training, on the machine as ``calibration`` measured it where that is given."""
    calibration = calibration or Calibration()
    rng = np.random.default_rng(SEED)
    central, draws = central_draws(fitted, training), random_draws(fitted, training, calibration, rng)
    values = central_parts(training, central, levels_of(training, central, calibration))
    spread = centred(parts_of(training, draws, levels_of(training, draws, calibration)), values)
    add_last(spread, training, rng)
    total, totals = sum_of(values), sum_of(spread)
    return Forecast(
        training, interval(total, totals), {name: float(values[name]) for name in PARTS},
        {name: interval(values[name], spread[name]) for name in PARTS},
        *(interval(values[name], spread[name]) for name in ("step", "epoch", "epochs", "data_staging")),
    )  # fmt: skip


def levels_of(training: Training, draws: Draws, calibration: Calibration) -> Levels:
    """What the calibration's runs show for each draw; ``training`` is on the machine as they measured it."""
    platform = training.platform
    return calibration.levels(
        draws.step, draws.data_staging, number_of(training), training.newer,
        draws.network / platform.network_bytes_per_s.central, draws.link / platform.link_bytes_per_s.central,
    )  # fmt: skip


def number_of(training: Training) -> NDArray[np.intp]:
    """The number of the application among those of published rounds."""
    return np.asarray(list(published_work()).index(training.work.application))


def central_parts(training: Training, draws: Draws, levels: Levels) -> dict[str, Floats]:
    """The parts for draws that are one set of numbers."""
    values = parts_of(training, draws, levels)
    add_last(values, training)
    return values


def centred(draws: Mapping[str, Floats], central: Mapping[str, Floats]) -> dict[str, Floats]:
    """The draws of each part, with the most probable value as their median.

    What is known about the parameters is their spread about that, in logarithms; some make parts far from linear. The
    input keeps its draws: it is what exceeds the device, and nothing where that is as slow.
    """
    scaled_draws = {}
    for name, values in draws.items():
        middle = float(np.median(values))
        ratio = float(central[name]) / middle if middle > 0 and name != "input" else 1.0
        scaled_draws[name] = np.asarray(values * ratio)
    return scaled_draws


def central_draws(fitted: Fitted, training: Training) -> Draws:
    """The most probable parameters, without noise."""
    one = np.ones(())
    platform = training.platform
    return Draws(
        fitted.step.parameters(), fitted.data_staging.parameters(), fitted.evaluation.parameters(),
        fitted.epoch_jitter.parameters(), fitted.extras.parameters(), Noise(one, one, one, one, one),
        np.asarray(training.epochs.mean), np.asarray(platform.network_bytes_per_s.central),
        np.asarray(platform.link_bytes_per_s.central), one,
        None if training.planned_staging is None else np.asarray(training.planned_staging.seconds.central),
        None if (limits := limits_of(training)) is None else InputDraws.central(limits),
    )  # fmt: skip


def random_draws(fitted: Fitted, training: Training, calibration: Calibration, rng: np.random.Generator) -> Draws:
    """Draws of everything that is not known."""
    platform = training.platform
    return Draws(
        fitted.step.draw(rng, DRAWS), fitted.data_staging.draw(rng, DRAWS), fitted.evaluation.draw(rng, DRAWS),
        fitted.epoch_jitter.draw(rng, DRAWS), fitted.extras.draw(rng, DRAWS), calibration.noise(
            fitted, rng, DRAWS, training.full_speed_s),
        training.epochs.draw(rng, DRAWS, training.runs if training.instances == 1 else 10**9),
        drawn(platform.network_bytes_per_s, rng, DRAWS), drawn(platform.link_bytes_per_s, rng, DRAWS),
        np.ones(()), drawn_staging(training, rng),
        None if (limits := limits_of(training)) is None else InputDraws.draw(limits, rng, DRAWS),
    )  # fmt: skip


def limits_of(training: Training) -> InputLimits | None:
    """What bounds the input; ``None`` where its rate is known."""
    return training.input_limits if training.input_bytes_per_s is None else None


def input_s(training: Training, draws: Draws, staging_s: Floats) -> Floats:
    """Seconds in which the samples of a step reach the accelerators of a node; ``staging_s``: of the whole staging."""
    if draws.input is None:
        return np.asarray(training.input_s)
    samples = training.global_batch / training.nodes
    return draws.input.seconds(training.work.landed_bytes, samples, training.devices, staging_s / training.steps)


def drawn_staging(training: Training, rng: np.random.Generator) -> Floats | None:
    """Draws of a planned staging: from one end to the other, and by how much a staging differs from its plan."""
    if training.planned_staging is None:
        return None
    seconds = drawn(training.planned_staging.seconds, rng, DRAWS)
    return np.asarray(seconds * np.exp(PLAN_SPREAD * rng.standard_normal(DRAWS)))


def staging_of(training: Training, draws: Draws, levels: Levels) -> Floats:
    """Seconds until all data are on the nodes: by plan and probe, or by the fit, at the level of runs that staged."""
    if draws.planned_staging is not None:
        return draws.planned_staging
    newer, full_speed_s = np.asarray(float(training.newer)), np.asarray(training.full_speed_s)
    fitted = data_staging_s(draws.data_staging, number_of(training), newer, full_speed_s)
    return levels.staging_s(fitted * draws.noise.data_staging)


def parts_of(training: Training, draws: Draws, levels: Levels) -> dict[str, Floats]:
    """The parts of one instance, and also step, epoch, epochs and data_staging.

    Draws of a changed machine need ``levels`` of the unchanged one: inferred with changed draws, they undo the change.
    """
    number = number_of(training)
    case = training_case(training, draws)
    device, factor, exposed = step_parts(training, draws, case, levels)
    data_staging = staging_of(training, draws, levels)
    busy = np.maximum(device, input_s(training, draws, data_staging))
    step = busy * factor + exposed
    alone = step_parts(training, draws, single(case), levels)[0] / training.accumulation
    evaluation = evaluation_s(draws.evaluation, case, training.validation_samples, alone) * draws.noise.evaluation
    interrupted = draws.epoch_jitter["epoch_jitter"] * draws.noise.epoch_jitter
    training_epoch = training.steps * step * (1 + interrupted)
    staging = data_staging if training.stages_first else np.maximum(data_staging - training_epoch, 0.0)
    trained = draws.epochs * training.steps
    return {
        "staging": staging, "device": trained * device, "input": trained * (busy - device),
        "jitter": trained * (busy * (factor - 1) + step * interrupted), "messages": trained * exposed,
        "evaluation": draws.epochs * evaluation,
        "extras": draws.extras["extras"][..., number] * draws.noise.extras,
        "step": step, "epoch": training_epoch + evaluation, "epochs": draws.epochs, "data_staging": data_staging,
    }  # fmt: skip


def training_case(training: Training, draws: Draws) -> StepCase:
    """The step of a training."""
    return case_of(
        training.work, training.platform, training.nodes, training.devices, training.local_batch, training.newer,
        draws.network, draws.link,
    )  # fmt: skip


def step_parts(training: Training, draws: Draws, case: StepCase, levels: Levels) -> tuple[Floats, Floats, Floats]:
    """Device seconds of a typical rank, the slowest rank's factor over that, and exposed messages; calibrated."""
    factor, device = jitter(draws.step, case), levels.device_s(draws.step, case)
    pass_s = device_s(draws.step, case) if device is None else device
    exposed = waited_s(draws.step, case, levels.messages, pass_s, draws.latency)
    if device is None:
        exposed = exposed * draws.noise.step
    return training.accumulation * pass_s * draws.noise.step, factor, exposed


def add_last(parts: dict[str, Floats], training: Training, rng: np.random.Generator | None = None) -> None:
    """Add what the last of several instances takes beyond a typical one; nothing for a single instance."""
    once = sum_of(parts) * 0
    if training.instances > 1:
        count = training.instances
        largest = expected_largest(count)
        if rng is not None:
            largest = largest_draws(rng, count, len(once))
        spread = np.hypot(training.epochs.seeds, RUN_SPREAD)
        running = sum_of(parts) - parts["staging"] - parts["extras"]
        once = running * (np.exp(spread * largest) - 1) + training.start_spread_s
    parts["last instance"] = once


def sum_of(parts: Mapping[str, Floats]) -> Floats:
    """The sum of the parts that are present."""
    total = np.zeros(())
    for name in PARTS:
        total = total + parts.get(name, 0.0)
    return total


def interval(central: Floats, values: Floats) -> Interval:
    """The central number with the ends of the 80 % interval of draws."""
    low, high = np.quantile(np.broadcast_to(values, (DRAWS,)), (LOW, HIGH))
    return Interval(float(central), min(float(low), float(central)), max(float(high), float(central)))
