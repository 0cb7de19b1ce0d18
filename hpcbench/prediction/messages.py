"""Seconds of an all-reduce among the ranks of nodes: hierarchical alpha-beta, as pure arithmetic.

Within a node ``n`` ranks scatter and gather over their links, 2 S (n - 1) / n bytes. Between ``N`` nodes each rank
reduces its part S / n in a ring over its share of the node's network, 2 (S / n) (N - 1) / N bytes, and a tree of
log2(N) hops adds latency.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def all_reduce_s(
    size: ArrayLike, devices: ArrayLike, nodes: ArrayLike, link: ArrayLike, network: ArrayLike, latency: ArrayLike
) -> Floats:
    """Seconds for ``size`` bytes of each of ``devices`` ranks on each of ``nodes`` nodes.

    ``link`` (between two ranks of a node) and ``network`` (of a whole node) are in bytes/s, ``latency`` in s per hop.
    Arguments broadcast.
    """
    size, devices, nodes = np.asarray(size, float), np.asarray(devices, float), np.asarray(nodes, float)
    within = 2 * size * (devices - 1) / devices / np.asarray(link)
    share = np.asarray(network) / devices
    between = 2 * (size / devices) * (nodes - 1) / nodes / share
    hops: Floats = np.asarray(within + between + np.asarray(latency) * np.log2(nodes))
    return hops
