"""Staging of slabs: if the ranks that share samples are on several nodes, each node gets the rows that it needs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.spatial_part import input_shape
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.spatial.extents import Extent, cut
from hpcbench.train.task import Task
from staging.errors import InputError
from staging.ranks.world import World


def rows_of_node(shape: MeshShape, nodes: Sequence[int], node: int, rows: int) -> Extent:
    """The rows that ranks on ``node`` have, from the first to the last, of ``rows`` of a sample's first dimension.

    ``nodes`` are the nodes of all ranks.
    """
    ranks, inner = shape.spatial[0], shape.spatial_size // shape.spatial[0]
    part_numbers = {rank % shape.spatial_size // inner for rank, other in enumerate(nodes) if other == node}
    parts = cut(rows, ranks)
    return Extent(parts[min(part_numbers)].start, parts[max(part_numbers)].stop)


def check_slabs(application: Application, config: RunConfig, shape: MeshShape, task: Task) -> None:
    """Raise ``InputError`` if slabs were asked for, but samples are not split, or not read, by rows."""
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


def own_rows(shape: MeshShape, training: Any, world: World) -> Extent:
    """The rows that this node stages; collective."""
    nodes = world.all_gather(world.place.node)
    return rows_of_node(shape, nodes, world.place.node, input_shape(training)[1])


def transform_of_rows(application: Application, config: RunConfig, training: Any, rows: Extent) -> str:
    """The transform of staging, followed by one that leaves out the other rows."""
    names = application.module("data").npy_inputs(form_of(application, config))
    cut_rows = f"npy-rows:first={rows.start},stop={rows.stop},of={input_shape(training)[1]},names={names}"
    transform = config.staging.transform
    return f"{transform}+{cut_rows}" if transform else cut_rows
