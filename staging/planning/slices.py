"""Slices of entries: nearly all are whole, but a large one may be cut so that several ranks bring it together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CUT_BYTES = 8 << 20
"""Smaller entries are not cut."""
LEAST_ALIGN_BYTES, ALIGN_BYTES = 1 << 12, 1 << 20
"""Cuts are at multiples of a power of two between these, so that no block of a filesystem is written twice."""
OF_SHARE = 128
"""Cuts are at multiples of at most this part of a run, so that runs of runs still differ by less than a twentieth."""


@dataclass(frozen=True)
class Slices:
    """Bytes ``start`` to ``stop`` of the entries ``entry`` of ``size`` bytes; arrays of equal length."""

    entry: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    size: NDArray[np.int64]

    @classmethod
    def whole(cls, sizes: NDArray[np.int64], entries: NDArray[np.int64] | None = None) -> Slices:
        """All entries of the given ``sizes``, or those numbered ``entries``, uncut."""
        entries = np.arange(len(sizes), dtype=np.int64) if entries is None else entries
        entry_sizes = sizes[entries]
        return cls(entries, np.zeros(len(entries), np.int64), entry_sizes, entry_sizes)

    def __len__(self) -> int:
        return len(self.entry)

    @property
    def bytes(self) -> NDArray[np.int64]:
        """Bytes of each slice."""
        return self.stop - self.start

    @property
    def is_cut(self) -> NDArray[np.bool_]:
        """Which slices are not whole entries."""
        cut: NDArray[np.bool_] = self.bytes != self.size
        return cut

    def take(self, which: NDArray[np.int64]) -> Slices:
        """The slices numbered ``which``, in this order."""
        return Slices(self.entry[which], self.start[which], self.stop[which], self.size[which])


def cut(
    slices: Slices, parts: int, groups: NDArray[np.int64], may_cut: NDArray[np.bool_]
) -> tuple[Slices, NDArray[np.int64]]:
    """Cut large slices where ``balance.runs`` divides a group into ``parts`` runs; also the slice each came from.

    ``may_cut`` says which slices may be cut; those of entries below ``CUT_BYTES`` are not. Runs of the result differ
    from the mean of their group by at most the largest slice that is not cut, plus ``alignment`` of that mean.
    """
    sizes = slices.bytes
    large = may_cut & (slices.size >= CUT_BYTES)
    if parts == 1 or not large.any():
        return slices, np.arange(len(slices), dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    weights = sizes[order]
    ends = np.cumsum(weights)
    firsts = np.flatnonzero(np.diff(groups[order], prepend=groups[order[0]] - 1))
    totals = np.add.reduceat(weights, firsts)
    shares = totals[:, None] // parts * np.arange(1, parts) + totals[:, None] % parts * np.arange(1, parts) // parts
    bounds = ((ends[firsts] - weights[firsts])[:, None] + shares).ravel()
    at = np.minimum(np.searchsorted(ends, bounds, side="right"), len(ends) - 1)
    inside = bounds - (ends[at] - weights[at])
    align = np.repeat(alignment(totals // parts), parts - 1)
    offsets = (inside + align // 2) // align * align
    good = large[order][at] & (offsets > 0) & (offsets < weights[at])
    cuts = np.unique(np.stack([order[at[good]], offsets[good]]), axis=1)
    numbers = np.concatenate([np.arange(len(slices), dtype=np.int64), cuts[0]])
    starts = np.concatenate([slices.start, slices.start[cuts[0]] + cuts[1]])
    sort = np.lexsort((starts, numbers))
    numbers, starts = numbers[sort], starts[sort]
    is_last = np.append(numbers[1:] != numbers[:-1], True)
    stops = np.where(is_last, slices.stop[numbers], np.append(starts[1:], 0))
    return Slices(slices.entry[numbers], starts, stops, slices.size[numbers]), numbers


def alignment(share: NDArray[np.int64]) -> NDArray[np.int64]:
    """Bytes to whose multiples a run of ``share`` bytes is cut: a power of two."""
    wanted = np.clip(share // OF_SHARE, LEAST_ALIGN_BYTES, ALIGN_BYTES)
    return np.left_shift(np.int64(1), np.log2(wanted).astype(np.int64))
