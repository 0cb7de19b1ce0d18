"""A simulation of a processor's heap as glibc keeps it: the heap takes more from the system than is in use.

A tensor goes into the smallest hole that holds it wherever its alignment falls, else on top. What is left of the hole
before and after the tensor stays a hole for smaller tensors; neighbouring holes merge. Memory goes back to the system
only from the top, and only beyond ``TRIM_BYTES``. Tensors of ``MAPPED_BYTES`` or more for which the heap would have to
grow have a mapping of their own, which goes back at once. A run on a CPU sets both bounds (``hpcbench.parallel.heap``).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from hpcbench.parallel.heap import MAPPED_BYTES, TRIM_BYTES

ALIGNMENT, LARGE_ALIGNMENT, LARGE_BYTES = 64, 4096, 2 * 2**20
"""torch aligns tensors to cache lines, and those of ``LARGE_BYTES`` or more to pages, for huge pages."""
CHUNK = 32
"""The smallest hole that glibc keeps; requests with an alignment ask for this much more."""
KEPT_BYTES = 100_000
"""Roughly what each compiled kernel leaves for good (30 to 150 KB were seen); it keeps holes apart."""
LIBRARY_BYTES = 20_000_000
"""Code of libraries that is loaded when it first runs (11 MB were seen), and buffers that MKL keeps (7 MB)."""
STEPS = 3
"""Number of simulated steps; the first one creates the optimizer's state and the kernels."""


class Event(NamedTuple):
    """What became of a tensor of a pass."""

    kind: str
    """``made``, ``freed``, ``gradient`` (from then on it is a parameter's) or ``kernel`` (compiled, and kept)."""
    number: int
    size: int = 0


class Heap:
    """Allocations by name, and the most memory that they took."""

    def __init__(self) -> None:
        self.peak = 0
        self._top = self._extent = self._mapped = 0
        self._live: dict[object, tuple[int | None, int]] = {}
        self._holes: list[tuple[int, int]] = []
        """(size, start), in order."""
        self._by_start: dict[int, int] = {}
        self._by_end: dict[int, int] = {}

    def allocate(self, name: object, size: int) -> None:
        """Find room for ``size`` bytes under ``name``."""
        alignment = LARGE_ALIGNMENT if size >= LARGE_BYTES else ALIGNMENT
        size = -(-(size + CHUNK // 2) // CHUNK) * CHUNK
        wanted = size + alignment + CHUNK
        start: int | None = None
        if wanted >= MAPPED_BYTES and not self._has_room(wanted):
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
        """The first byte, and the one after the last, of each allocation in the heap."""
        return [(start, start + size) for start, size in self._live.values() if start is not None]

    def _has_room(self, wanted: int) -> bool:
        """Whether the heap holds so many bytes without more from the system."""
        return wanted <= self._extent - self._top or bool(self._holes and wanted <= self._holes[-1][0])

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
    """The most bytes that steps take from the system, each step of ``passes`` passes with these ``events``.

    ``parameters`` and ``standing`` are the bytes of the tensors that exist from the start; from the first step on
    there are also ``moments`` tensors for each parameter.
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
    """Make and free the tensors of a pass; return the gradients that are left. Later passes add theirs at once."""
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
