"""Shares files out evenly by bytes: to the least loaded, or in contiguous runs."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray


def least_loaded(sizes: NDArray[np.int64], parts: int, seed: int) -> NDArray[np.int32]:
    """The part of each element: in an order drawn from ``seed``, each goes to the part with the fewest bytes so far.

    The loads of any two parts then differ by at most the largest size (Graham, 1969). Of equal loads, the one with
    fewer elements is taken, then the first. The draw uses raw Philox bits, the same in every version of NumPy.
    """
    order = np.argsort(np.random.Philox(seed).random_raw(len(sizes)), kind="stable")
    part = np.empty(len(sizes), np.int32)
    if len(sizes) == 0 or sizes.min() == sizes.max():
        part[order] = np.arange(len(sizes)) % parts
        return part
    loads = [(0, 0, number) for number in range(parts)]
    taken: list[int] = []
    for size in sizes[order].tolist():
        load, count, number = loads[0]
        heapq.heapreplace(loads, (load + size, count + 1, number))
        taken.append(number)
    part[order] = taken
    return part


def runs(sizes: NDArray[np.int64], parts: int, groups: NDArray[np.int64]) -> NDArray[np.int32]:
    """The part of each element: within each group, the elements in order are cut into ``parts`` runs.

    A run takes the elements whose middle byte falls into its share, so that its bytes differ from the mean of its
    group by at most the largest size there. A group without bytes is cut by number of elements.
    """
    part = np.zeros(len(sizes), np.int32)
    if len(sizes) == 0 or parts == 1:
        return part
    order = np.argsort(groups, kind="stable")
    firsts = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    counts = np.diff(firsts, append=len(sizes))
    weights = sizes[order]
    weights[np.repeat(np.add.reduceat(weights, firsts) == 0, counts)] = 1
    totals = np.repeat(np.add.reduceat(weights, firsts), counts)
    before = np.cumsum(weights) - weights
    middles = before - np.repeat(before[firsts], counts) + weights / 2
    part[order] = np.minimum(middles / totals * parts, parts - 1).astype(np.int32)
    return part
