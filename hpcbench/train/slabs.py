"""Staging of slabs: where the ranks that share samples are on several nodes, each node gets the rows that it needs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.part import input_shape
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.spatial.spans import Span, cut
from hpcbench.train.build import open_data
from hpcbench.train.task import Task
from staging.errors import InputError
from staging.ranks.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from hpcbench.train.context import Run


def rows_of_node(shape: MeshShape, nodes: Sequence[int], node: int, rows: int) -> Span:
    """Of ``rows`` of a sample's first dimension, those from the first to the last that ranks on ``node`` have.

    ``nodes`` are those of all ranks.
    """
    ranks, inner = shape.spatial[0], shape.spatial_size // shape.spatial[0]
    places = {rank % shape.spatial_size // inner for rank, other in enumerate(nodes) if other == node}
    parts = cut(rows, ranks)
    return Span(parts[min(places)].start, parts[max(places)].stop)


def check_slabs(application: Application, config: RunConfig, shape: MeshShape, task: Task) -> None:
    """Raise ``InputError`` where slabs were asked for, and samples are not split, or not read, by rows."""
    if not config.staging.slabs:
        return
    if shape.spatial[0] == 1:
        raise InputError(
            f"staging.slabs brings each node its rows of samples that are split in their first dimension, and "
            f"parallel.spatial ({config.parallel.spatial}) does not split it; set it to 2 or more, or slabs false"
        )
    data = application.module("data")
    if not hasattr(data, "npy_inputs"):
        raise InputError(f"{application.package}.data has no npy_inputs(data), which staging.slabs needs; set it false")
    data.npy_inputs(form_of(application, config))
    for training in (True, False):
        if not task.reads_parts(training):
            what = "training" if training else "validation"
            raise InputError(
                f"staging.slabs needs {what} samples that are prepared by parts, and {application.name} prepares them "
                "whole as it is configured (data.augment, data.apply_log); change that, or set staging.slabs false"
            )


def form_of(application: Application, config: RunConfig) -> object:
    """``config.data`` with the form that samples have after the transform of staging."""
    data = copy.deepcopy(config.data)
    if config.staging.transform:
        application.module("data").staged_form(data, config.staging.transform)
    return data


def own_rows(run: Run, world: World) -> Span:
    """The rows that this node stages; collective."""
    nodes = world.all_gather(world.place.node)
    return rows_of_node(run.mesh.shape, nodes, world.place.node, input_shape(run.training)[1])


def transform_of_rows(run: Run, span: Span) -> str:
    """The transform of staging, and behind it one that leaves the other rows out."""
    names = run.application.module("data").npy_inputs(form_of(run.application, run.config))
    rows = f"npy-rows:first={span.start},stop={span.stop},of={input_shape(run.training)[1]},names={names}"
    transform = run.config.staging.transform
    return f"{transform}+{rows}" if transform else rows


def read_slabs(run: Run, folder: Path) -> None:
    """Train on the rows of samples that are in ``folder``; what needs whole samples goes on reading the source."""
    config = copy.deepcopy(run.config)
    if config.staging.transform:
        run.application.module("data").staged_form(config.data, config.staging.transform)
    config.data.root = str(folder)
    training, validation = open_data(run.application, config)
    run.open_loaders(config, training, validation, run.slab)
