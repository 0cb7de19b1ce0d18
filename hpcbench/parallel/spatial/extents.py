"""How a dimension of a sample is cut over ranks, and which inputs a layer needs for its part of the output.

The input and output of every layer are cut in the same way, by size alone, so that any two tensors of one size are cut
alike. Where a layer needs more than a rank has, or the cuts of its input and output do not match, the rank fetches the
rest from whichever rank has it, neighbour or not. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Extent(NamedTuple):
    """The indices of a dimension from ``start`` up to but not including ``stop``; outside the tensor is padding."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of elements."""
        return max(self.stop - self.start, 0)

    def common(self, other: Extent) -> Extent:
        """The elements in both, of length 0 if there are none."""
        start = max(self.start, other.start)
        return Extent(start, max(start, min(self.stop, other.stop)))

    def moved(self, by: int) -> Extent:
        """The extent shifted ``by`` elements."""
        return Extent(self.start + by, self.stop + by)


def cut(size: int, parts: int) -> list[Extent]:
    """A dimension of ``size`` cut into consecutive extents whose lengths differ by at most one."""
    return [Extent(part * size // parts, (part + 1) * size // parts) for part in range(parts)]


class Reach(Protocol):
    """Which inputs a span of outputs is computed from."""

    def needs(self, outputs: Extent) -> Extent:
        """The span of inputs, padding included, for ``outputs``, which are not empty."""
        ...

    def outputs(self, size: int) -> int:
        """Outputs of a dimension of ``size``."""
        ...


@dataclass(frozen=True)
class Window:
    """A convolution or pooling in one dimension: output o reads o * stride - before + j * dilation, j < kernel."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    before: int = 0
    after: int = 0

    def needs(self, outputs: Extent) -> Extent:
        """As in ``Reach``."""
        first = outputs.start * self.stride - self.before
        return Extent(first, (outputs.stop - 1) * self.stride - self.before + (self.kernel - 1) * self.dilation + 1)

    def outputs(self, size: int) -> int:
        """As in ``Reach``."""
        return (size + self.before + self.after - (self.kernel - 1) * self.dilation - 1) // self.stride + 1


@dataclass(frozen=True)
class Trimmed:
    """A convolution over a dimension of ``size``, without the taps that meet only padding.

    Near an edge a wide dilation has such taps; the ranks there neither fetch inputs for them nor compute them.
    """

    window: Window
    size: int

    def taps(self, outputs: Extent) -> Extent:
        """The taps j of the kernel that contribute to ``outputs``; at least one."""
        window = self.window
        first, last = (place * window.stride - window.before for place in (outputs.start, outputs.stop - 1))
        # Tap j reads from first + j * dilation to last + j * dilation: not all of it before 0, nor from size on.
        start = min(max(-(last // window.dilation), 0), window.kernel - 1)
        stop = min((self.size - 1 - first) // window.dilation + 1, window.kernel)
        return Extent(start, max(stop, start + 1))

    def needs(self, outputs: Extent) -> Extent:
        """As in ``Reach``."""
        window, taps = self.window, self.taps(outputs)
        all_taps = window.needs(outputs)
        return Extent(
            all_taps.start + taps.start * window.dilation,
            all_taps.stop - (window.kernel - taps.stop) * window.dilation,
        )

    def outputs(self, size: int) -> int:
        """As in ``Reach``."""
        return self.window.outputs(size)


@dataclass(frozen=True)
class TransposedWindow:
    """A transposed convolution in one dimension: input i adds to outputs i * stride - padding + j * dilation."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    padding: int = 0
    output_padding: int = 0

    def needs(self, outputs: Extent) -> Extent:
        """As in ``Reach``, with enough inputs added for their own outputs to cover ``outputs``.

        Where strides are wider than kernels, some outputs depend on no input.
        """
        reach = (self.kernel - 1) * self.dilation
        first, last = outputs.start + self.padding, outputs.stop - 1 + self.padding
        return Extent(
            min(-((reach - first) // self.stride), first // self.stride),
            max(last // self.stride, -((reach - last) // self.stride)) + 1,
        )

    def begins(self, first_input: int) -> int:
        """The first output that an input adds to."""
        return first_input * self.stride - self.padding

    def outputs(self, size: int) -> int:
        """As in ``Reach``."""
        return (size - 1) * self.stride - 2 * self.padding + (self.kernel - 1) * self.dilation + self.output_padding + 1


@dataclass(frozen=True)
class Plan:
    """What every rank of an axis has of a dimension, and what it needs; the same on all ranks."""

    size: int
    """Places of the whole dimension; a span that extends beyond them asks for padding."""
    have: tuple[Extent, ...]
    need: tuple[Extent, ...]

    @classmethod
    def of(cls, size: int, parts: int, reach: Reach) -> Plan:
        """The plan for a layer whose outputs are cut as its inputs are."""
        need = [reach.needs(outputs) for outputs in cut(reach.outputs(size), parts)]
        return cls(size, tuple(cut(size, parts)), tuple(need))

    @classmethod
    def gathering(cls, size: int, parts: int) -> Plan:
        """The plan that gives every rank the whole dimension."""
        return cls(size, tuple(cut(size, parts)), (Extent(0, size),) * parts)

    @property
    def local(self) -> bool:
        """Whether no rank needs anything beyond what it has."""
        return self.have == self.need

    def sends(self, rank: int) -> list[tuple[int, Extent]]:
        """What ``rank`` has and others need: (other rank, extent)."""
        return [
            (other, common)
            for other, need in enumerate(self.need)
            if other != rank and (common := need.common(self.have[rank])).length
        ]

    def receives(self, rank: int) -> list[tuple[int, Extent]]:
        """What ``rank`` needs and others have: (other rank, extent)."""
        return [
            (other, common)
            for other, have in enumerate(self.have)
            if other != rank and (common := have.common(self.need[rank])).length
        ]

    def elements(self, rank: int) -> int:
        """Places that ``rank`` receives."""
        return sum(span.length for _, span in self.receives(rank))
