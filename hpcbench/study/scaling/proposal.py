"""What runs cost on each size, as a proposal for computer time asks for it: hours, operations, data, memory, storage.

The baseline is the smallest size of a variant that was measured, and efficiency is relative to it. Every figure is that
of the variant's own runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.study.scaling.point_results import PointResult, by_variant, efficiency
from hpcbench.study.scaling.time_to_solution import HOUR_S, node_hours, run_s
from hpcbench.study.scaling.trainings import Size, Training
from staging.errors import InputError

ROUNDING = 1e-9


@dataclass(frozen=True)
class Campaign:
    """What is asked for."""

    runs: int = 5
    """Trainings on each size."""
    contingency: float = 0.15
    """Part of the hours that is added for what fails or is done again."""
    min_efficiency: float = 0.7
    """Sizes below are not recommended."""


@dataclass(frozen=True)
class Line:
    """One size of a variant. Hours, operations and bytes are of all ``runs`` together, each of which trains one model.

    Where the runs do not tell a figure, or the site does not say what a node has, it is unset.
    """

    variant: str
    nodes: int
    ranks: int
    instances: int
    """That train at the same time and share the nodes and ranks."""
    campaign: Campaign
    training: Training
    """One of the runs."""
    hours_per_run: float
    """With its staging and start."""
    node_hours: float
    """Without contingency, as are the next two."""
    core_hours: float | None
    gpu_hours: float | None
    flop: float | None
    """Floating-point operations of training."""
    data_bytes: float | None
    """Moved: landed on all nodes together where the runs staged, else read by all ranks together from where the dataset
    lies, which is its bytes for every epoch and every evaluation. Caches may spare some of that."""
    staged: bool
    memory_bytes: int | None
    """Peak of a rank: of its accelerator, or of its process where there is none."""
    accelerators: bool
    """Whether ``memory_bytes`` is of accelerators."""
    dataset_bytes: int | None
    run_folders_bytes: int | None
    """Of all runs, each as large as those that were measured."""
    efficiency: float
    """Throughput over the baseline's, over the factor in nodes."""

    @property
    def recommended(self) -> bool:
        """Whether the size is efficient enough."""
        return self.efficiency >= self.campaign.min_efficiency - ROUNDING

    @property
    def storage_bytes(self) -> int | None:
        """Of the shared filesystem: the dataset once, and the folders of all runs."""
        if self.dataset_bytes is None or self.run_folders_bytes is None:
            return None
        return self.dataset_bytes + self.run_folders_bytes

    def asked(self, hours: float | None) -> float | None:
        """Hours with the contingency."""
        return None if hours is None else hours * (1 + self.campaign.contingency)


def proposal(rows: Sequence[PointResult], trainings: Mapping[Size, Training], campaign: Campaign) -> list[Line]:
    """What the campaign costs on each size, variant by variant, smallest first.

    Sizes that ``trainings`` do not name have no line. Raises ``InputError`` for numbers of runs and samples that are
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
    """Nodes of the largest size of one variant that is efficient enough; unset where none is."""
    return max((line.nodes for line in lines if line.recommended), default=None)


def _line(row: PointResult, baseline: PointResult, training: Training, campaign: Campaign) -> Line:
    if not training.samples > 0:
        raise InputError(
            f"a run of {training.samples:g} samples on {row.nodes} nodes has no cost; it must have more than 0"
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
    )  # fmt: skip


def _moved(row: PointResult, training: Training, runs: int) -> float | None:
    staged, train = row.middle("instance_staged_bytes"), row.largest("train_bytes")
    if staged is not None:
        return staged * runs
    if train is None:
        return None
    return runs * (train * training.epochs + (row.largest("validation_bytes") or 0) * training.evaluations)
