"""What runs cost on each size, as in a proposal for computer time: hours, operations, data, memory, storage.

The baseline is the smallest size of a variant that was measured, and efficiency is relative to it. Every figure is from
the variant's own runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from hpcbench.results.units import counted
from hpcbench.study.scaling.point_results import PointResult, by_variant, efficiency, efficiency_interval
from hpcbench.study.scaling.time_to_solution import HOUR_S, node_hours, run_s
from hpcbench.study.scaling.trainings import Size, Training
from staging.errors import InputError

ROUNDING = 1e-9


@dataclass(frozen=True)
class Campaign:
    """What the proposal asks for."""

    runs: int = 5
    """Trainings on each size."""
    contingency: float = 0.15
    """Part of the hours that is added for runs that fail or are repeated."""
    min_efficiency: float = 0.7
    """Sizes with a lower efficiency are not recommended."""


@dataclass(frozen=True)
class Extras:
    """What the page of a scaling study joins to the measurements."""

    convergence: str | None = None
    """Folder of a convergence study of the same application, or ``none``; unset: the one that the study remembers."""
    campaign: Campaign = field(default_factory=Campaign)
    """What the proposal table is for."""


@dataclass(frozen=True)
class Line:
    """One size of a variant. Hours, operations and bytes are for all ``runs`` together, each of which trains one model.

    A figure is unset if the runs do not have it, or if the site does not say what a node has.
    """

    variant: str
    nodes: int
    ranks: int
    instances: int
    """Number of instances that train at the same time and share the nodes and ranks."""
    campaign: Campaign
    training: Training
    """The training of one run."""
    hours_per_run: float
    """Hours of a run, including its staging and start."""
    node_hours: float
    """Node-hours without contingency, as are the next two."""
    core_hours: float | None
    gpu_hours: float | None
    flop: float | None
    """Floating-point operations of training."""
    data_bytes: float | None
    """Bytes moved: those that landed on all nodes together if the runs staged; otherwise those that all ranks together
    read from the dataset's own place, its bytes for every epoch and every evaluation. Caches may save some of that."""
    staged: bool
    memory_bytes: int | None
    """Peak of a rank: of its accelerator, or of its process if there is none."""
    accelerators: bool
    """Whether ``memory_bytes`` is of accelerators."""
    dataset_bytes: int | None
    run_folders_bytes: int | None
    """Bytes of the folders of all runs, each as large as those that were measured."""
    efficiency: float
    """Throughput over the baseline's, divided by the factor in nodes."""
    efficiency_interval: tuple[float, float] | None = None
    """Its 95 % interval; unset for the baseline, and where either size has a single repeat."""

    @property
    def recommended(self) -> bool:
        """Whether the size is efficient enough."""
        return self.efficiency >= self.campaign.min_efficiency - ROUNDING

    @property
    def in_doubt(self) -> bool:
        """Whether repeats scatter so much that the true efficiency may be on the other side of the threshold."""
        if self.efficiency_interval is None:
            return False
        low, high = self.efficiency_interval
        return (
            low < self.campaign.min_efficiency - ROUNDING if self.recommended else high >= self.campaign.min_efficiency
        )

    @property
    def storage_bytes(self) -> int | None:
        """Bytes on the shared filesystem: the dataset once, and the folders of all runs."""
        if self.dataset_bytes is None or self.run_folders_bytes is None:
            return None
        return self.dataset_bytes + self.run_folders_bytes

    def asked(self, hours: float | None) -> float | None:
        """Hours with the contingency."""
        return None if hours is None else hours * (1 + self.campaign.contingency)


def proposal(rows: Sequence[PointResult], trainings: Mapping[Size, Training], campaign: Campaign) -> list[Line]:
    """What the campaign costs on each size, variant by variant, smallest first.

    Sizes that ``trainings`` does not name have no line. Raises ``InputError`` for numbers of runs and samples that are
    not positive.
    """
    if campaign.runs < 1:
        raise InputError(f"a proposal for {campaign.runs} runs has no cost; give at least 1")
    return [
        _line(row, members[0], trainings[variant, row.nodes], campaign)
        for variant, members in by_variant(rows).items()
        for row in members
        if (variant, row.nodes) in trainings
    ]


def largest_recommended(lines: Sequence[Line]) -> int | None:
    """Nodes of the largest size of one variant before the first that is not efficient enough; ``None`` if none is.

    ``lines`` are in order of their nodes.
    """
    return max((line.nodes for line in takewhile(lambda line: line.recommended, lines)), default=None)


def _line(row: PointResult, baseline: PointResult, training: Training, campaign: Campaign) -> Line:
    if not training.samples > 0:
        raise InputError(
            f"a run of {training.samples:g} samples on {counted(row.nodes, 'node')} has no cost; it must have more "
            "than 0"
        )
    runs, seconds = campaign.runs, run_s(row, training.samples, training.evaluations)
    cost, flops, folder = runs * node_hours(row, seconds), row.largest("flops_per_sample"), row.largest("folder_bytes")
    train, validation = row.largest("train_bytes"), row.largest("validation_bytes") or 0
    return Line(
        variant=row.variant, nodes=row.nodes, ranks=row.ranks, instances=row.instances, campaign=campaign,
        training=training, hours_per_run=seconds / HOUR_S, node_hours=cost,
        core_hours=cost * row.cores_per_node or None, gpu_hours=cost * row.gpus_per_node or None,
        flop=None if flops is None else flops * training.samples * runs, data_bytes=_moved(row, training, runs),
        staged=row.middle("staged_bytes") is not None, memory_bytes=row.largest("peak_memory_bytes"),
        accelerators=any(run.device_type not in ("", "cpu") for run in row.runs),
        dataset_bytes=None if train is None else train + validation,
        run_folders_bytes=None if folder is None else folder * runs, efficiency=efficiency(row, baseline),
        efficiency_interval=efficiency_interval(row, baseline),
    )  # fmt: skip


def _moved(row: PointResult, training: Training, runs: int) -> float | None:
    staged, train = row.middle("instance_staged_bytes"), row.largest("train_bytes")
    if staged is not None:
        return staged * runs
    if train is None:
        return None
    return runs * (train * training.epochs + (row.largest("validation_bytes") or 0) * training.evaluations)
