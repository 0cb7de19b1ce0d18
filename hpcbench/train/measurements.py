"""The measurements of a run: which observers watch its steps. To add one, write a file of its own and a line here.

Other packages register theirs in the group ``hpcbench.measurements``; ``measure.extra`` names those that a run uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpcbench import plugins
from hpcbench.config.schema import RunConfig
from hpcbench.train import loss_buffer, noise_scale, profiler, tensorboard, trust_ratios, warm_steps
from hpcbench.train.measurement import Measurement, ObserverInputs
from hpcbench.train.observers import Observers, StepObserver
from staging.errors import InputError

MEASUREMENTS = (
    noise_scale.MEASUREMENT,
    trust_ratios.MEASUREMENT,
    loss_buffer.MEASUREMENT,
    profiler.MEASUREMENT,
    tensorboard.MEASUREMENT,
    warm_steps.MEASUREMENT,
)
"""The built-in measurements, in the order in which their observers are called."""
OTHER_TABLES = ("epochs.csv", "ranks.csv")
"""Tables of a run folder that no observer writes."""


def find_measurement(name: str) -> Measurement:
    """The measurement that another package registers as ``name``. Raises ``InputError`` if it cannot be used."""
    point = plugins.find(plugins.MEASUREMENTS, name)
    if point is None:
        raise InputError(f"no package registers a measurement '{name}'; install its package")
    measurement: Measurement = plugins.load(point, Measurement)
    if not (isinstance(measurement.kind, type) and issubclass(measurement.kind, StepObserver)):
        raise InputError(f"{plugins.words(point)} must have a StepObserver as its kind; mend its package")
    if measurement.kind.summary is not StepObserver.summary:
        raise InputError(f"{plugins.words(point)} has a summary; write rows instead")
    table, taken = measurement.kind.table, {*(other.kind.table for other in MEASUREMENTS), *OTHER_TABLES} - {""}
    if table in taken or (table and not (table.endswith(".csv") and table == Path(table).name)):
        raise InputError(
            f"{plugins.words(point)} writes into '{table}', which must be a name such as {name}.csv, and "
            f"none of {', '.join(sorted(taken))}; mend its package"
        )
    return measurement


def check_measurements(config: RunConfig, parts: int) -> None:
    """Raise ``InputError`` for an unusable plug-in, for two with one table or state, and for an unmet requirement.

    ``parts`` counts the parts of a step over all ranks.
    """
    extras = {name: find_measurement(name) for name in config.measure.extra}
    for key in ("table", "name"):
        values = [value for extra in extras.values() if (value := getattr(extra.kind, key))]
        for name, extra in extras.items():
            if values.count(getattr(extra.kind, key)) > 1:
                raise InputError(f"measure.extra: '{name}' has the {key} of another one; leave one of them")
    for measurement in measurements(config):
        measurement.check(config, parts)


def measurements(config: RunConfig) -> Iterator[Measurement]:
    """The measurements that the configuration asks for, in the order in which their observers are called."""
    yield from (measurement for measurement in MEASUREMENTS if measurement.wanted(config))
    yield from (measurement for name in config.measure.extra if (measurement := find_measurement(name)).wanted(config))


def looks_at_gradients(config: RunConfig) -> bool:
    """Whether a measurement that the configuration asks for needs gradients before the optimizer has used them."""
    return any(measurement.kind.looks_at_gradients() for measurement in measurements(config))


def slowed_steps(config: RunConfig) -> int:
    """How many steps after those of ``measure.warmup_steps`` measurements slow down."""
    return max((measurement.slowed_steps(config) for measurement in measurements(config)), default=0)


def make_observers(parts: ObserverInputs) -> Observers:
    """The observers that the configuration asks for."""
    run = parts.run
    wanted = [measurement for measurement in measurements(run.config) if run.is_first or not measurement.only_first]
    return Observers([measurement.make(parts) for measurement in wanted])
