"""The order of samples: a global shuffle every epoch that does not depend on how many ranks share it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def epoch_order(samples: int, seed: int, epoch: int) -> Indices:
    """A permutation of all samples, a function of seed and epoch alone (counter-based Philox generator)."""
    generator = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    return generator.permutation(samples)


def rank_batches(order: Indices, rank: int, ranks: int, local_batch: int, last_batch: str) -> list[Indices]:
    """The micro-batches of one rank over an epoch.

    Micro-batch ``b`` of all ranks together is ``order[b * ranks * local_batch :][: ranks * local_batch]``, cut into
    consecutive parts, so that the set of samples behind a step is the same for any split of the batch. In the last
    micro-batch the parts differ by at most one sample and may be empty; with ``last_batch="drop"`` it is left out.
    """
    step = ranks * local_batch
    batches = []
    for start in range(0, len(order), step):
        together = order[start : start + step]
        if len(together) < step and last_batch == "drop":
            break
        bounds = np.linspace(0, len(together), ranks + 1).round().astype(np.int64)
        batches.append(together[bounds[rank] : bounds[rank + 1]])
    return batches


def batch_sizes(samples: int, step: int, last_batch: str) -> list[int]:
    """Samples in each micro-batch over all ranks, in order."""
    full, rest = divmod(samples, step)
    return [step] * full + ([rest] if rest and last_batch == "keep" else [])


def rank_share(samples: int, rank: int, ranks: int) -> Indices:
    """The samples that a rank evaluates: consecutive, every sample on exactly one rank, sizes differ by at most one."""
    bounds = np.linspace(0, samples, ranks + 1).round().astype(np.int64)
    return np.arange(bounds[rank], bounds[rank + 1], dtype=np.int64)
