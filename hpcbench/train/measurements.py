"""The measurements of a run: which observers watch its steps. A new one is a file of its own and a line here.

Other packages register theirs in the group ``hpcbench.measurements``; ``measure.extra`` names those that a run has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcbench import plugins
from hpcbench.config.schema import RunConfig
from hpcbench.measure.step_times import StepTimes
from hpcbench.train import profiler, tensorboard
from hpcbench.train.context import RunContext
from hpcbench.train.loss_buffer import LossBuffer
from hpcbench.train.noise_scale import NoiseScale
from hpcbench.train.observers import Observers, StepInfo, StepObserver
from hpcbench.train.profiler import StepProfiler
from hpcbench.train.tensorboard import TensorBoard
from hpcbench.train.training_step import TrainingStep
from hpcbench.train.trust_ratios import TrustRatios
from staging.errors import InputError


class WarmSteps(StepObserver):
    """What the steps after the warm-up take."""

    def __init__(self, times: StepTimes) -> None:
        self.times = times

    def begin(self) -> None:
        """As of ``StepTimes``."""
        self.times.begin()

    def after_step(self, info: StepInfo) -> None:
        """Count the step."""
        self.times.step(info.step_samples)

    def end(self) -> None:
        """As of ``StepTimes``."""
        self.times.end()


@dataclass(frozen=True)
class ObserverInputs:
    """What observers are made of."""

    run: RunContext
    step: TrainingStep
    times: StepTimes
    resumed_step: int
    """The last step of the checkpoint that the run continues from, else 0."""


@dataclass(frozen=True)
class Measurement:
    """A kind of observer: when the configuration asks for it, and how it is made."""

    kind: type[StepObserver]
    wanted: Callable[[RunConfig], object]
    make: Callable[[ObserverInputs], StepObserver]
    only_first: bool = False
    """Whether only rank 0 has it."""


def noise_scale(parts: ObserverInputs) -> StepObserver:
    """Of all parameters."""
    run, step = parts.run, parts.step
    every = run.config.train.noise_scale_every
    return NoiseScale(step.model.parameters(), run.group, every, run.precision.scaler, run.mesh, run.communication)


def trust_ratios(parts: ObserverInputs) -> StepObserver:
    """Of the layers of the model."""
    step = parts.step
    return TrustRatios(step.optimizer.optimizer, step.model, parts.run.config.train.trust_ratios_every)


def step_profiler(parts: ObserverInputs) -> StepObserver:
    """Into a file of its own for each attempt that traces."""
    run, measure = parts.run, parts.run.config.measure
    path = profiler.unused_path(run.folder.path)
    return StepProfiler(path, run.device, measure.warmup_steps, measure.profile_steps)


MEASUREMENTS = (
    Measurement(NoiseScale, lambda config: config.train.noise_scale_every, noise_scale),
    Measurement(TrustRatios, lambda config: config.train.trust_ratios_every, trust_ratios),
    Measurement(LossBuffer, lambda _: True, lambda parts: LossBuffer(parts.run.group, parts.run.communication)),
    Measurement(StepProfiler, lambda config: config.measure.profile_steps, step_profiler, only_first=True),
    Measurement(
        TensorBoard,
        lambda config: config.measure.tensorboard,
        lambda parts: TensorBoard(parts.run.folder.path / tensorboard.FOLDER, parts.resumed_step),
        only_first=True,
    ),
    Measurement(WarmSteps, lambda _: True, lambda parts: WarmSteps(parts.times)),
)
"""In the order in which their observers are called."""
OTHER_TABLES = ("epochs.csv", "ranks.csv")
"""Tables of a run folder that no observer writes."""


def find_measurement(name: str) -> Measurement:
    """The measurement that another package registers as ``name``. Raises ``InputError`` where it cannot be used."""
    point = plugins.find(plugins.MEASUREMENTS, name)
    if point is None:
        raise InputError(f"no package registers a measurement '{name}'; install its package")
    found: Measurement = plugins.load(point, Measurement)
    if not (isinstance(found.kind, type) and issubclass(found.kind, StepObserver)):
        raise InputError(f"{plugins.words(point)} must have a StepObserver as its kind; mend its package")
    if found.kind.summary is not StepObserver.summary:
        raise InputError(f"{plugins.words(point)} has a summary; write rows instead")
    table, own = found.kind.table, {*(each.kind.table for each in MEASUREMENTS), *OTHER_TABLES} - {""}
    if table in own or (table and not (table.endswith(".csv") and table == Path(table).name)):
        raise InputError(
            f"{plugins.words(point)} writes into '{table}', which must be a name such as {name}.csv, and "
            f"none of {', '.join(sorted(own))}; mend its package"
        )
    return found


def check_measurements(config: RunConfig) -> None:
    """Raise ``InputError`` for a plug-in that cannot be used, and for two with the same table or state."""
    found = {name: find_measurement(name) for name in config.measure.extra}
    for key in ("table", "name"):
        values = [value for each in found.values() if (value := getattr(each.kind, key))]
        for name, each in found.items():
            if values.count(getattr(each.kind, key)) > 1:
                raise InputError(f"measure.extra: '{name}' has the {key} of another one; leave one of them")


def measurements(config: RunConfig) -> Iterator[Measurement]:
    """What the configuration asks for, in the order in which the observers are called."""
    yield from (each for each in MEASUREMENTS if each.wanted(config))
    yield from (each for name in config.measure.extra if (each := find_measurement(name)).wanted(config))


def looks_at_gradients(config: RunConfig) -> bool:
    """Whether a measurement that the configuration asks for needs gradients before the optimizer has used them."""
    return any(each.kind.looks_at_gradients() for each in measurements(config))


def make_observers(parts: ObserverInputs) -> Observers:
    """The observers that the configuration asks for."""
    run = parts.run
    wanted = [each for each in measurements(run.config) if run.is_first or not each.only_first]
    return Observers([each.make(parts) for each in wanted])
