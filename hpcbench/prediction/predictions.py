"""Everything that is predicted for one command line: sizes of each application, effects of changes, advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpcbench.batch.machine import Machine
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.prediction.calibration import Calibration
from hpcbench.prediction.changes import INTERCONNECT, effects
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.kernel_time import kernels_of
from hpcbench.prediction.planned_staging import read_probe
from hpcbench.prediction.platforms import PEAK, platform_of
from hpcbench.prediction.pool import Advice, advise, aims
from hpcbench.prediction.read_runs import OwnEpochs, measured_runs, own_epochs_of, records_of
from hpcbench.prediction.request import OTHER, REFERENCE, Request, Size, predict
from hpcbench.prediction.step_time import NEWEST
from hpcbench.prediction.workload import work_of
from staging.errors import InputError


@dataclass(frozen=True)
class Options:
    """What a command line asks for."""

    applications: tuple[str, ...]
    machine: Machine
    nodes: tuple[int, ...]
    batch: int | None
    recipe: str
    software: str
    instances: int
    stages_first: bool
    input_gb_s: float | None
    calibrate: tuple[Path, ...]
    pool: int | None
    interconnect: bool
    characterization: Path | None
    probe: Path | None = None
    trainings: Mapping[str, int] = field(default_factory=dict)
    """How many trainings of each application share the pool; one where it is not named."""


@dataclass(frozen=True)
class Predicted:
    """The sizes of one application."""

    request: Request
    sizes: tuple[Size, ...]
    improvements: tuple[dict[str, float] | None, ...]
    """For each size: what each change of the machine does to the time."""
    interconnect: tuple[dict[str, float] | None, ...]
    """The same for a slower interconnect; empty where it was not asked for."""


@dataclass(frozen=True)
class Predictions:
    """All predictions of one command line."""

    options: Options
    predicted: tuple[Predicted, ...]
    advice: tuple[Advice, ...]


def predictions(options: Options, fitted: Fitted, machines: Sequence[Machine]) -> Predictions:
    """Predict everything. Raises ``InputError`` for what cannot be predicted."""
    predicted = tuple(predict_application(name, options, fitted, machines) for name in options.applications)
    advice: tuple[Advice, ...] = ()
    if options.pool is not None:
        choices = {
            prediction.request.application: [size.forecast for size in prediction.sizes if size.forecast is not None]
            for prediction in predicted
        }
        watts = {prediction.request.application: prediction.request.calibration.watts for prediction in predicted}
        advice = tuple(advise(choices, options.pool, aim, watts, options.trainings) for aim in aims(watts))
    return Predictions(options, predicted, advice)


def predict_application(name: str, options: Options, fitted: Fitted, machines: Sequence[Machine]) -> Predicted:
    """The sizes of one application."""
    request = request_of(name, options, machines)
    sizes = predict(request, fitted, machines)

    def moved(slower: bool) -> tuple[dict[str, float] | None, ...]:
        changes = {"changes": INTERCONNECT} if slower else {}
        return tuple(
            None if size.forecast is None else effects(fitted, size.forecast, request.calibration, **changes)
            for size in sizes
        )

    return Predicted(request, tuple(sizes), moved(False), moved(True) if options.interconnect else ())


def request_of(name: str, options: Options, machines: Sequence[Machine]) -> Request:
    """The request for one application. Raises ``InputError`` for runs that cannot be used."""
    work, newer = work_of(name), options.software == NEWEST
    kernels, counted, peak, messages, host = None, None, PEAK, None, None
    if options.characterization is not None:
        kernels, counted, peak, messages, host = kernels_of(options.characterization)
        if counted.application != name:
            raise InputError(
                f"--characterization {options.characterization} is of {counted.application}; give {name}'s"
            )
        work = counted
    own = OwnEpochs({}, {}, None)
    if options.recipe not in (REFERENCE, OTHER):
        own = own_epochs_of(recipe_folder(options.recipe), work)
    calibration = Calibration((), kernels, messages)
    if records := calibrating(options, name):
        platform = platform_of(options.machine, machines, calibrated=True, peak=peak)
        calibration = replace(calibration, runs=measured_runs(records, work, platform, newer))
    return Request(
        name, options.machine, options.nodes, options.batch, options.recipe, newer, options.instances,
        options.stages_first, options.input_gb_s, own.epochs, calibration, counted, peak,
        None if options.probe is None else read_probe(options.probe), own.missed, own.target, host,
    )  # fmt: skip


def calibrating(options: Options, name: str) -> list[RunRecord]:
    """The runs that calibrate one application; runs of a pool's other applications are left to those."""
    records = records_of(options.calibrate, "--calibrate") if options.calibrate else []
    others = {other for other in options.applications if other != name}
    return [record for record in records if record.application not in others]


def recipe_folder(text: str) -> Path:
    """The folder that ``--recipe`` names. Raises ``InputError`` where it does not exist."""
    path = Path(text)
    if not path.exists():
        raise InputError(f"--recipe {text} must be {REFERENCE}, {OTHER}, or a folder with runs of your own")
    return path
