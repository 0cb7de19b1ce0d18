"""The order of samples: a global shuffle every epoch that does not depend on how many ranks share it.

If each node has a part of the training set, a shard, it shuffles its own samples, so the order is a different one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Shards:
    """Which node has each training sample, and which node each rank is on; nodes count from 0."""

    home: Indices
    node: tuple[int, ...]

    def samples_on(self, node: int) -> Indices:
        """Numbers of the samples on ``node``, ascending."""
        return np.flatnonzero(self.home == node)

    def ranks_on(self, node: int) -> list[int]:
        """The ranks on ``node``, ascending."""
        return [rank for rank, other in enumerate(self.node) if other == node]


def epoch_order(samples: int, seed: int, epoch: int, node: int = 0) -> Indices:
    """A permutation of all samples, a function of seed, epoch and node alone (counter-based Philox generator)."""
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, node]))
    return generator.permutation(samples)


def epoch_batches(
    samples: int, seed: int, epoch: int, own_ranks: Sequence[int], ranks: int, local_batch: int, last_batch: str,
    shards: Shards | None = None,
) -> list[list[Indices]]:  # fmt: skip
    """The micro-batches of each rank in ``own_ranks`` over an epoch, as many as every other rank has.

    With ``shards``, each node deals a permutation of its own samples to its ranks. A node that is done before others
    then has empty micro-batches; with ``last_batch="drop"`` all nodes end with the first one that is done.
    """
    if shards is None:
        order = epoch_order(samples, seed, epoch)
        return [rank_batches(order, rank, ranks, local_batch, last_batch) for rank in own_ranks]
    number = len(epoch_sizes(samples, ranks, local_batch, last_batch, shards))
    batches_by_rank: dict[int, list[Indices]] = {}
    for node in sorted({shards.node[rank] for rank in own_ranks}):
        here, neighbours = shards.samples_on(node), shards.ranks_on(node)
        order = here[epoch_order(len(here), seed, epoch, node)]
        for place, rank in enumerate(neighbours):
            if rank in own_ranks:
                batches = rank_batches(order, place, len(neighbours), local_batch, last_batch)
                batches_by_rank[rank] = (batches + [here[:0]] * (number - len(batches)))[:number]
    return [batches_by_rank[rank] for rank in own_ranks]


def in_passes(batches: list[list[Indices]], together: int) -> list[Indices]:
    """The micro-batches of several ranks in the order in which one process does them.

    For each micro-batch the ranks take turns; the batches of ``together`` neighbouring ranks are joined into one.
    """
    groups = [batches[first : first + together] for first in range(0, len(batches), together)]
    return [np.concatenate([rank[number] for rank in group]) for number in range(len(batches[0])) for group in groups]


def epoch_sizes(samples: int, ranks: int, local_batch: int, last_batch: str, shards: Shards | None = None) -> list[int]:
    """Samples in each micro-batch of an epoch over all ranks, in order."""
    if shards is None:
        return batch_sizes(samples, ranks * local_batch, last_batch)
    on_node = np.bincount(shards.home, minlength=max(shards.node) + 1).tolist()
    sizes_by_node = [
        batch_sizes(on_node[node], len(shards.ranks_on(node)) * local_batch, last_batch) for node in set(shards.node)
    ]
    together = zip_longest(*sizes_by_node, fillvalue=0) if last_batch == "keep" else zip(*sizes_by_node, strict=False)
    return [sum(sizes) for sizes in together]


def rank_batches(order: Indices, rank: int, ranks: int, local_batch: int, last_batch: str) -> list[Indices]:
    """The micro-batches of one rank over an epoch.

    Micro-batch ``b`` of all ranks together is ``order[b * ranks * local_batch :][: ranks * local_batch]``, cut into
    consecutive parts, so that a step sees the same set of samples for any split of the batch. In the last
    micro-batch the parts differ by at most one sample and may be empty; with ``last_batch="drop"`` it is left out.
    """
    step = ranks * local_batch
    full = len(order) // step
    batches = [order[start : start + local_batch] for start in range(rank * local_batch, full * step, step)]
    rest = order[full * step :]
    if len(rest) and last_batch == "keep":
        bounds = np.linspace(0, len(rest), ranks + 1).round().astype(np.int64)
        batches.append(rest[bounds[rank] : bounds[rank + 1]])
    return batches


def batch_sizes(samples: int, step: int, last_batch: str) -> list[int]:
    """Samples in each micro-batch over all ranks, in order."""
    full, rest = divmod(samples, step)
    return [step] * full + ([rest] if rest and last_batch == "keep" else [])


def rank_share(samples: int, rank: int, ranks: int) -> Indices:
    """The samples that a rank evaluates: consecutive, each on exactly one rank; shares differ by at most one sample."""
    bounds = np.linspace(0, samples, ranks + 1).round().astype(np.int64)
    return np.arange(bounds[rank], bounds[rank + 1], dtype=np.int64)
