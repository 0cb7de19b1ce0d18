"""What limits a training, and how another machine would change it: one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hpcbench.prediction.calibration import Calibration
from hpcbench.prediction.factor import Parameters
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.forecast import PARTS, Draws, Forecast, central_draws, central_parts, levels_of, sum_of
from hpcbench.prediction.training import Training

Apply = Callable[[Training, Draws], tuple[Training, Draws]]

LIMITS: Mapping[str, str] = {
    "staging": "bringing the data to the nodes", "device": "the accelerators", "input": "reading samples",
    "jitter": "waiting for the slowest rank, and jitter of epochs", "messages": "messages between ranks",
    "evaluation": "evaluation", "extras": "what is done once", "last instance": "the last of the instances",
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One thing that is different."""

    words: str
    apply: Apply


def faster_network(factor: float) -> Apply:
    """A network of ``factor`` times the bandwidth, for messages and for staging without a plan."""

    def apply(training: Training, draws: Draws) -> tuple[Training, Draws]:
        platform = training.platform
        network = platform.network_bytes_per_s.scaled(factor)
        return replace(training, platform=replace(platform, network_bytes_per_s=network)), replace(
            draws, network=draws.network * factor
        )

    return apply


def faster_messages(factor: float) -> Apply:
    """The same for messages alone."""

    def apply(training: Training, draws: Draws) -> tuple[Training, Draws]:
        return training, replace(draws, network=draws.network * factor)

    return apply


def faster_memory(factor: float) -> Apply:
    """Accelerators with ``factor`` times the memory bandwidth."""

    def apply(training: Training, draws: Draws) -> tuple[Training, Draws]:
        platform = training.platform
        return replace(
            training, platform=replace(platform, memory_bytes_per_s=platform.memory_bytes_per_s * factor)
        ), draws

    return apply


def scaled(parameters: Parameters, name: str, factor: float) -> Parameters:
    """The parameters with one of them ``factor`` times as large."""
    return {**parameters, name: parameters[name] * factor}


def latency(factor: float) -> Apply:
    """``factor`` times the latency of a message."""
    return lambda training, draws: (
        training, replace(draws, step=scaled(draws.step, "latency", factor), latency=draws.latency * factor),
    )  # fmt: skip


def staging(factor: float) -> Apply:
    """``factor`` times the time for the data to arrive."""
    return lambda training, draws: (
        training,
        replace(
            draws, data_staging=scaled(draws.data_staging, "level", factor),
            planned_staging=None if draws.planned_staging is None else draws.planned_staging * factor,
        ),
    )  # fmt: skip


def steady(training: Training, draws: Draws) -> tuple[Training, Draws]:
    """Ranks that are all alike, and no epoch jitter."""
    return training, replace(
        draws, step=scaled(draws.step, "jitter", 0.0),
        epoch_jitter=scaled(draws.epoch_jitter, "epoch_jitter", 0.0),
    )  # fmt: skip


def fewer_epochs(factor: float) -> Apply:
    """A recipe that needs ``factor`` times the epochs."""
    return lambda training, draws: (training, replace(draws, epochs=draws.epochs * factor))


IMPROVEMENTS = (
    Change("twice the memory bandwidth", faster_memory(2)),
    Change("twice the network", faster_network(2)),
    Change("data there twice as fast", staging(0.5)),
    Change("all ranks alike", steady),
    Change("10 % fewer epochs", fewer_epochs(0.9)),
)
INTERCONNECT = (
    Change("bandwidth halved", faster_messages(0.5)),
    Change("latency doubled", latency(2)),
    Change("both", lambda training, draws: faster_messages(0.5)(*latency(2)(training, draws))),
)


def effects(
    fitted: Fitted, forecast: Forecast, calibration: Calibration, changes: Sequence[Change] = IMPROVEMENTS
) -> dict[str, float]:
    """How much each change moves the time, as a fraction of it."""
    before, unchanged = forecast.time.central, central_draws(fitted, forecast.training)
    levels = levels_of(forecast.training, unchanged, calibration)
    moved = {}
    for change in changes:
        training, draws = change.apply(forecast.training, unchanged)
        moved[change.words] = float(sum_of(central_parts(training, draws, levels))) / before - 1
    return moved


def limit(forecast: Forecast) -> str:
    """What takes the largest part of the time, in words."""
    largest = max(PARTS, key=lambda name: forecast.parts[name])
    return LIMITS[largest]


def best_change(moved: Mapping[str, float]) -> tuple[str, float]:
    """The change of the machine that helps most."""
    name = min(moved, key=lambda change: moved[change])
    return name, moved[name]
