"""What a user asks for, checked, and made into trainings: one for each size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from pathlib import Path

from hpcbench.batch.machine import Machine
from hpcbench.characterisation.model import Host
from hpcbench.prediction.calibration import Calibration
from hpcbench.prediction.epochs import Epochs, other_epochs, own_epochs, reference_training
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.forecast import Forecast, forecast
from hpcbench.prediction.input_limits import GB, input_limits
from hpcbench.prediction.planned_staging import PlannedStaging, planned_staging
from hpcbench.prediction.platforms import PEAK, Platform, check_device, platform_of
from hpcbench.prediction.recipes import NEWEST_RULES, reference_points
from hpcbench.prediction.training import Training, share_batch
from hpcbench.prediction.workload import Work, work_of
from hpcbench.results.units import counted
from staging.errors import InputError
from staging.probing.ceilings import Ceilings

ALIKE = 0.05
"""Operations of a sample that differ by less count as those of one size."""
USABLE = 0.8
"""Share of an accelerator's memory for what samples take; the rest is for model, optimizer and buffers."""
FITTED_TO = "NVIDIA"
OTHER, REFERENCE = "other", "reference"


@dataclass(frozen=True)
class Request:
    """Options of a prediction."""

    application: str
    machine: Machine
    nodes: tuple[int, ...]
    """Nodes of an instance; each is a size that is predicted."""
    batch: int | None = None
    """Global batch; ``None``: for each size the fastest of those in ``own_runs``, else of those of reference points."""
    recipe: str = REFERENCE
    """``reference``, ``other``, or a folder with your own runs."""
    newer: bool = True
    instances: int = 1
    stages_first: bool = True
    input_gb_s: float | None = None
    own_runs: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Epochs of the runs in the folder ``recipe``, by batch."""
    calibration: Calibration = field(default_factory=Calibration)
    work: Work | None = None
    """Counts of a characterisation; ``None``: those of the published size."""
    peak: str = PEAK
    """The field of the machine's file with the peak of the precision."""
    probe: Ceilings | None = None
    """What a probe found on the machine; ``None``: nobody probed it."""
    own_missed: Mapping[int, int] = field(default_factory=dict)
    """Runs in that folder that missed the target, by batch."""
    own_target: float | None = None
    """The target of those runs."""
    host: Host | None = None
    """Where the kernels of ``calibration`` were measured."""


@dataclass(frozen=True)
class Size:
    """A size that was asked for: what is predicted for it, or why nothing is."""

    nodes: int
    forecast: Forecast | None
    refusal: str = ""
    chosen_among: int = 1
    """Batches of which the fastest was taken."""


def predict(request: Request, fitted: Fitted, machines: Sequence[Machine]) -> list[Size]:
    """A prediction for each size. Raises ``InputError`` where nothing can be predicted on the machine."""
    platform = checked_platform(request, machines)
    sizes = [predict_size(request, fitted, platform, nodes) for nodes in request.nodes]
    if all(size.forecast is None for size in sizes):
        raise InputError(sizes[0].refusal)
    return sizes


def checked_platform(request: Request, machines: Sequence[Machine]) -> Platform:
    """The platform of a request. Raises ``InputError`` where its machine, or a size, cannot be predicted."""
    machine, measured = request.machine, bool(request.calibration.runs) or request.calibration.kernels is not None
    platform = platform_of(machine, machines, calibrated=bool(request.calibration.runs), peak=request.peak)
    if request.host is not None:
        check_device("the --characterization", request.host.device, request.host.model, platform)
    if not measured and FITTED_TO not in platform.accelerator:
        raise InputError(
            f"no tuned code was published on {platform.accelerator or 'the processors'} of {machine.name}, so nothing "
            "tells how fast a step is there; give a run on it with --calibrate"
        )
    most = max(request.nodes) * request.instances
    if platform.nodes is not None and most > platform.nodes:
        raise InputError(
            f"--nodes {most:,}: {machine.name} has {counted(platform.nodes, 'node')} of this kind; ask for fewer"
        )
    return platform


def predict_size(request: Request, fitted: Fitted, platform: Platform, nodes: int) -> Size:
    """The prediction for one size; with the best batch where none was given."""
    work = request.work or work_of(request.application)
    batches = [request.batch] if request.batch else batches_of(request)
    forecasts, refusals = [], []
    for batch in batches:
        try:
            training = training_of_request(request, fitted, platform, nodes, batch, work)
        except InputError as error:
            refusals.append(str(error))
            continue
        forecasts.append(forecast(fitted, training, request.calibration))
    if not forecasts:
        return Size(nodes, None, refusals[-1])
    return Size(nodes, min(forecasts, key=lambda candidate: candidate.time.central), chosen_among=len(forecasts))


def batches_of(request: Request) -> list[int]:
    """The batches to choose from: those whose epochs are known best."""
    return sorted(request.own_runs) or list(reference_points(request.application, NEWEST_RULES))


def training_of_request(
    request: Request, fitted: Fitted, platform: Platform, nodes: int, batch: int, work: Work
) -> Training:
    """The training at one size. Raises ``InputError`` where there is none."""
    ranks = nodes * platform.devices
    most = batch
    if platform.memory_bytes is not None:
        most = max(1, floor(USABLE * platform.memory_bytes / work.footprint_bytes))
    return Training(
        work, platform, nodes, platform.devices, batch, share_batch(batch, ranks, most), request.newer,
        work.train_samples, work.validation_samples, epochs_of_request(request, fitted, batch), request.stages_first,
        input_bytes_per_s=None if request.input_gb_s is None else request.input_gb_s * GB,
        input_limits=input_limits(platform, work, nodes, measured=bool(request.calibration.runs)),
        planned_staging=plan(request, work, nodes), instances=request.instances,
    )  # fmt: skip


def plan(request: Request, work: Work, nodes: int) -> PlannedStaging | None:
    """The staging by its plan, where a probe gives the rates; runs that staged on the machine tell more."""
    if request.probe is None or request.calibration.staged:
        return None
    shared = request.machine.filesystem_read_gb_s
    return planned_staging(work, nodes, request.probe, None if shared is None else shared * GB)


def epochs_of_request(request: Request, fitted: Fitted, batch: int) -> Epochs:
    """Epochs by the recipe that was asked for.

    Raises ``InputError`` for a batch whose epochs are unknown, and for ``reference`` or ``other`` where samples are of
    another size than the published ones.
    """
    work, published = request.work, work_of(request.application)
    alike = work is None or abs(work.useful_flop / published.useful_flop - 1) <= ALIKE
    if work is not None and not alike and request.recipe in (REFERENCE, OTHER):
        raise InputError(
            f"{work.source} has samples of {work.useful_flop / 1e9:,.3g} GFLOP where the published size has "
            f"{published.useful_flop / 1e9:,.4g}, and reference points tell nothing of their epochs; give runs of your "
            "own with --recipe FOLDER"
        )
    if request.recipe == REFERENCE:
        return reference_training(request.application, batch, fitted.entries, fitted.epochs)
    if request.recipe == OTHER:
        return other_epochs(request.application, NEWEST_RULES, batch, fitted.epochs)
    missed = request.own_missed.get(batch, 0)
    return own_epochs(batch, request.own_runs, fitted.epochs, Path(request.recipe).name, missed)
