"""The heap of a processor as glibc keeps it, simulated: what it takes from the system is more than what is in use.

A tensor goes into the smallest hole that holds it wherever its alignment falls, else on top, and what is left of the
hole before and after it stays one for smaller tensors; neighbouring holes become one. Memory goes back to the
system from the top alone, and only beyond ``TRIM_BYTES``. Tensors from ``MAPPED_BYTES`` on have a mapping of their own,
which goes back at once. Both are the bounds that glibc comes to by itself in a process that frees large tensors.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

MAPPED_BYTES = 32 * 2**20
TRIM_BYTES = 2 * MAPPED_BYTES
ALIGNMENT, LARGE_ALIGNMENT, LARGE_BYTES = 64, 4096, 2 * 2**20
"""torch aligns tensors to cache lines, and from ``LARGE_BYTES`` on, for huge pages, to pages."""
CHUNK = 32
"""The least that glibc keeps as a hole; requests with an alignment ask for so much more."""
KEPT_BYTES = 100_000
"""What each compiled kernel leaves for good, about: 30 to 150 KB were seen; it keeps holes apart."""
STEPS = 3
"""So many steps are simulated; the first one makes the optimizer's state and the kernels."""


class Event(NamedTuple):
    """What became of a tensor of a pass."""

    kind: str
    """``made``, ``freed``, ``gradient`` (from then on it is one of a parameter) or ``kernel`` (compiled, and kept)."""
    number: int
    size: int = 0


class Heap:
    """Allocations by name, and the most that they took."""

    def __init__(self) -> None:
        self.peak = 0
        self._top = self._extent = self._mapped = 0
        self._live: dict[object, tuple[int | None, int]] = {}
        self._holes: list[tuple[int, int]] = []
        """(size, start), in order."""
        self._by_start: dict[int, int] = {}
        self._by_end: dict[int, int] = {}

    def allocate(self, name: object, size: int) -> None:
        """Find room for ``size`` bytes."""
        alignment = LARGE_ALIGNMENT if size >= LARGE_BYTES else ALIGNMENT
        size = -(-(size + CHUNK // 2) // CHUNK) * CHUNK
        start: int | None = None
        if size + alignment + CHUNK >= MAPPED_BYTES:
            self._mapped += size
        else:
            start = self._place(size, alignment)
        self._live[name] = (start, size)
        self._extent = max(self._extent, self._top)
        self.peak = max(self.peak, self._extent + self._mapped)

    def free(self, name: object) -> None:
        """Give back what ``allocate`` found for ``name``."""
        start, size = self._live.pop(name)
        if start is None:
            self._mapped -= size
            return
        after = self._by_start.get(start + size)
        if after is not None:
            self._fill(start + size, after)
            size += after
        before = self._by_end.get(start)
        if before is not None:
            self._fill(before, start - before)
            start, size = before, size + start - before
        if start + size < self._top:
            self._leave(start, size)
            return
        self._top = start
        if self._extent - self._top > TRIM_BYTES:
            self._extent = self._top

    def spans(self) -> list[tuple[int, int]]:
        """First byte, and the one after the last, of what is allocated in the heap."""
        return [(start, start + size) for start, size in self._live.values() if start is not None]

    def _place(self, size: int, alignment: int) -> int:
        wanted = size + alignment + CHUNK
        at = bisect.bisect_left(self._holes, (wanted, -1))
        if at < len(self._holes):
            length, start = self._holes[at]
            self._fill(start, length)
            stop = start + length
        else:
            start, stop = self._top, self._top + wanted
            self._top = stop
        aligned = -(-start // alignment) * alignment
        if start < aligned:
            self._leave(start, aligned - start)
        if aligned + size < stop:
            if stop == self._top:
                self._top = aligned + size
            else:
                self._leave(aligned + size, stop - aligned - size)
        return aligned

    def _leave(self, start: int, size: int) -> None:
        bisect.insort(self._holes, (size, start))
        self._by_start[start], self._by_end[start + size] = size, start

    def _fill(self, start: int, size: int) -> None:
        del self._holes[bisect.bisect_left(self._holes, (size, start))]
        del self._by_start[start], self._by_end[start + size]


def peak_of_steps(
    parameters: Sequence[int], moments: int, standing: Sequence[int], events: Sequence[Event], passes: int
) -> int:
    """The most bytes that steps take from the system, each of so many ``passes`` with these ``events``.

    There are ``parameters`` and what else is ``standing`` from the start, and from the first step on ``moments``
    tensors for each parameter.
    """
    heap = Heap()
    for number, size in enumerate([*parameters, *standing]):
        heap.allocate(("standing", number), size)
    for step in range(STEPS):
        gradients: list[object] = []
        for turn in range(min(passes, 2)):
            gradients += one_pass(heap, events, (step, turn))
        if step == 0:
            for number, size in enumerate(parameters):
                for moment in range(moments):
                    heap.allocate(("moment", number, moment), size)
        for gradient in gradients:
            heap.free(gradient)
    return heap.peak


def one_pass(heap: Heap, events: Sequence[Event], turn: tuple[int, int]) -> list[object]:
    """Make and free the tensors of a pass; returns the gradients that are left. Later turns add theirs at once."""
    gradients: list[object] = []
    left: dict[object, None] = {}
    for kind, number, size in events:
        name = (turn, number)
        if kind == "made":
            heap.allocate(name, size)
            left[name] = None
        elif kind == "kernel":
            if turn == (0, 0):
                heap.allocate(("kernel", number), size)
        elif kind == "freed" or turn[1]:
            heap.free(name)
            del left[name]
        else:
            gradients.append(name)
            del left[name]
    for kept in left:
        heap.free(kept)
    return gradients
