"""What staging brings to each node, before anything is read; imports no torch unless the dataset lies here."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.mesh_shape import MeshShape, mesh_shape
from hpcbench.parallel.spatial.extents import cut
from hpcbench.planning.dataset_size import DatasetSize, dataset_size, sample_size


@dataclass(frozen=True)
class StagedBytes:
    """The bytes of a dataset as they land on nodes."""

    dataset: DatasetSize
    """With bytes after the transform, and for slabs without the rows that a node leaves out."""
    nodes: int
    """Number of nodes that each get a part, or a copy."""
    sharded: bool
    """Whether each node gets a part of the training set; every node gets all validation samples."""
    copies: int = 1
    """How many of those nodes share a place: nodes simulated on one, or ranks with folders of their own."""
    may_shard: bool = True

    @property
    def per_node(self) -> int:
        """Bytes on the node that gets most."""
        return self.copies * (self.on(self.nodes) if self.sharded else self.dataset.total)

    def on(self, nodes: int) -> int:
        """Bytes on a node where each of ``nodes`` gets a shard."""
        samples = self.dataset.train_samples
        share = ceil(samples / nodes) / samples if samples else 0.0
        return round(self.dataset.train_bytes * share) + self.dataset.validation_bytes

    def nodes_for(self, room: int) -> int | None:
        """The fewest nodes whose shards fit ``room`` bytes each; ``None`` where no number does."""
        train_room = room // self.copies - self.dataset.validation_bytes
        samples = self.dataset.train_samples
        if not samples or train_room < self.dataset.train_bytes / samples:
            return None
        most = int(train_room / (self.dataset.train_bytes / samples))
        return ceil(samples / most)


def staged_bytes(
    application: Application, config: RunConfig, nodes: int, ranks_per_node: int, copies: int = 1
) -> StagedBytes | None:
    """What lands on each node of a job; ``None`` where the size of the dataset is unknown.

    ``copies`` of the nodes share a place. Raises ``InputError`` where their ranks cannot form a mesh.
    """
    stored = dataset_size(application, config)
    if stored is None:
        return None
    shape = mesh_shape(nodes * ranks_per_node, config.parallel.spatial)
    landed = transformed(application, config, stored, rows_share(shape, ranks_per_node))
    if landed is None:
        return None
    return StagedBytes(landed, nodes, config.staging.placement == "shard", copies, may_shard=not config.staging.slabs)


def transformed(application: Application, config: RunConfig, stored: DatasetSize, rows: float) -> DatasetSize | None:
    """The dataset after the transform, for slabs with the share ``rows`` of the inputs; ``None`` where unknown."""
    staging = config.staging
    if not staging.transform and not staging.slabs:
        return stored
    sample = sample_size(application, config, staging.transform)
    if sample is None:
        return None
    size = sample.total - (round(sample.inputs * (1 - rows)) if staging.slabs else 0)
    return DatasetSize(
        stored.train_samples, stored.validation_samples, stored.train_samples * size,
        stored.validation_samples * size, stored.basis,
    )  # fmt: skip


def rows_share(shape: MeshShape, ranks_per_node: int) -> float:
    """The largest share of a sample's rows that any node needs where its ranks share samples with others."""
    first, inner = shape.spatial[0], shape.spatial_size // shape.spatial[0]
    parts = cut(10**6, first)
    share = 0.0
    for start in range(0, shape.spatial_size * ranks_per_node, ranks_per_node):
        places = {rank % shape.spatial_size // inner for rank in range(start, start + ranks_per_node)}
        share = max(share, (parts[max(places)].stop - parts[min(places)].start) / 10**6)
    return share
