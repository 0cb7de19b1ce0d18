"""Datasets from which a rank reads only its part of each sample, if the ranks of a group share samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import Subset

from hpcbench.data.shard import Shard
from hpcbench.parallel.peers import Peers
from hpcbench.parallel.spatial.extents import Extent, cut

Extents = Mapping[int, Extent]
"""The places of each dimension of a batch (samples, channels, ...) that is cut; the others are whole."""


def part_of(samples: Any, axes: Mapping[int, Peers], stored: Extent | None = None) -> Any | None:
    """This rank's part of ``samples``, cut in the dimensions and over the ranks of ``axes``; targets stay whole.

    With ``stored`` the files hold only those places of dimension 2 of a batch. ``None`` if the dataset has no
    ``part(extents, stored)``; with it comes ``input_shape``, the shape of a whole sample's inputs (channels, ...).
    """
    if isinstance(samples, Shard):
        items = part_of(samples.items, axes, stored)
        return None if items is None else samples.also(items)
    if isinstance(samples, Subset):
        dataset = part_of(samples.dataset, axes, stored)
        return None if dataset is None else Subset(dataset, samples.indices)
    if not hasattr(samples, "part"):
        return None
    shape = samples.input_shape
    extents = {dim: cut(shape[dim - 1], axis.size)[axis.rank] for dim, axis in axes.items()}
    return samples.part(extents) if stored is None else samples.part(extents, stored)


def input_shape(samples: Any) -> tuple[int, ...]:
    """The shape of a whole sample's inputs, (channels, ...), for a dataset with ``part``."""
    if isinstance(samples, Shard):
        return input_shape(samples.items)
    if isinstance(samples, Subset):
        return input_shape(samples.dataset)
    shape: tuple[int, ...] = samples.input_shape
    return shape


def within(extents: Extents, stored: Extent | None) -> Extents:
    """``extents`` as they lie in files that hold only the places ``stored`` of dimension 2."""
    if stored is None:
        return extents
    return {**extents, 2: extents.get(2, stored).moved(-stored.start)}


def slices(extents: Extents, dims: Sequence[int]) -> tuple[slice, ...]:
    """The slices of an array whose dimensions are the dimensions ``dims`` of a batch, in this order."""
    return tuple(slice(*extents[dim]) if dim in extents else slice(None) for dim in dims)
