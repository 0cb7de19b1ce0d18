"""The ranks of a run as a mesh: along ``data`` they have their own samples, along the spatial axes they share one.

The ranks that share a sample are neighbours, so that on most machines they are on one node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import prod

import torch.distributed as dist
from torch import Tensor

from hpcbench.parallel.exposed import UNRECORDED, Recorder, recorded
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.node_peers import open_peers
from hpcbench.parallel.peers import Message, Peers
from hpcbench.parallel.spatial.convolution import Axes

FIRST_DIM = 2
"""The first dimension of a batch (samples, channels, ...) that can be split: depth in three dimensions, else height."""


@dataclass(frozen=True)
class Mesh:
    """This rank's place in the mesh, and the ranks that it communicates with."""

    shape: MeshShape
    rank: int
    axes: Axes = field(default_factory=dict)
    """Dimensions of a batch that are split, and the ranks that each is split over; empty if none is."""
    statistics: Peers | None = None
    """The ranks that share batch-norm statistics in split layers; unset if no dimension is split."""

    @property
    def data_rank(self) -> int:
        """Place along ``data``."""
        return self.rank // self.shape.spatial_size

    @property
    def spatial_rank(self) -> int:
        """Place among the ranks that share a sample."""
        return self.rank % self.shape.spatial_size


def make_mesh(
    group: Group,
    shape: MeshShape,
    batchnorm_processes: int = 1,
    timeout_s: float = 1800,
    recorder: Recorder = UNRECORDED,
) -> Mesh:
    """The mesh of all ranks of ``group``; collective.

    ``batchnorm_processes`` neighbouring places along ``data`` share batch-norm statistics, as do all ranks of a sample.
    ``timeout_s`` bounds how long these ranks wait for each other, which ``recorder`` records.
    """
    if shape.spatial_size == 1:
        return Mesh(shape, group.rank)

    def among(members: range, kind: str) -> Peers:
        # Not by torch's device mesh, whose groups have torch's own time limit.
        made = dist.new_group(list(members), timedelta(seconds=timeout_s), use_local_synchronization=True)
        return recorded(open_peers(made, group, timeout_s), recorder, kind)

    axes: Axes = {
        FIRST_DIM + number: among(along(shape, group.rank, number), "halo")
        for number, size in enumerate(shape.spatial)
        if size > 1
    }
    size = shape.spatial_size * batchnorm_processes
    first = group.rank - group.rank % size
    return Mesh(shape, group.rank, axes, among(range(first, first + size), "batch_norm"))


def along(shape: MeshShape, rank: int, number: int) -> range:
    """The ranks along spatial axis ``number`` of which ``rank`` is one; the last axis varies fastest."""
    step = prod(shape.spatial[number + 1 :])
    first = rank - rank // step % shape.spatial[number] * step
    return range(first, first + shape.spatial[number] * step, step)


def empty_axes(shape: MeshShape, rank: int) -> Axes:
    """Axes with this rank's place and no one to communicate with: enough to learn how a model would be split."""
    axes: dict[int, Peers] = {}
    place = rank % shape.spatial_size
    for number in reversed(range(len(shape.spatial))):
        place, index = divmod(place, shape.spatial[number])
        if shape.spatial[number] > 1:
            axes[FIRST_DIM + number] = EmptyPeers(index, shape.spatial[number])
    return dict(sorted(axes.items()))


class EmptyPeers:
    """A place among peers that do not exist."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As in ``Peers``; there is no one to exchange with."""
        raise NotImplementedError

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """As in ``Peers``; there is no one to sum over."""
        raise NotImplementedError

    def stacked(self, local: Tensor) -> Tensor:
        """As in ``Peers``; there is no one to gather from."""
        raise NotImplementedError
