"""How many ranks have samples of their own, and how many share a sample. Imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from staging.errors import InputError


@dataclass(frozen=True)
class MeshShape:
    """Ranks along ``data`` and along each spatial axis: depth, height and width, or height and width."""

    data: int
    spatial: tuple[int, ...] = (1,)

    @property
    def spatial_size(self) -> int:
        """Ranks that share a sample."""
        return prod(self.spatial)

    @property
    def words(self) -> str:
        """``4 x 2``: data by spatial; ``4 x (2x2)``."""
        spatial = "x".join(map(str, self.spatial))
        return f"{self.data} x {spatial if len(self.spatial) == 1 else f'({spatial})'}"


def mesh_shape(world_size: int, spatial: str) -> MeshShape:
    """The mesh of ``world_size`` ranks with samples split as ``spatial`` says: ``4``, or ``2x2``.

    Raises ``InputError`` if ``spatial`` is not of that form, or does not divide the ranks.
    """
    sizes = spatial_sizes(spatial)
    if world_size % prod(sizes):
        raise InputError(
            f"parallel.spatial ({spatial}) splits a sample over {prod(sizes)} ranks, which must divide the "
            f"{world_size} rank{'s' if world_size > 1 else ''} of the run; start a multiple of {prod(sizes)}"
        )
    return MeshShape(world_size // prod(sizes), sizes)


def spatial_sizes(spatial: str) -> tuple[int, ...]:
    """Ranks along each axis that ``spatial`` names: 2 and 2 of ``2x2``. Raises ``InputError`` for another form."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*){0,2}", spatial):
        raise InputError(f"parallel.spatial ({spatial}) must be a number of ranks such as 4, or one per dimension: 2x2")
    return tuple(int(part) for part in spatial.split("x"))


def check_axes(spatial: str, dims: int) -> None:
    """Raise ``InputError`` if ``spatial`` names more axes than samples have dimensions."""
    sizes = spatial_sizes(spatial)
    if len(sizes) > dims:
        raise InputError(
            f"parallel.spatial ({spatial}) splits a sample along {axes_words(len(sizes), 'axes')}, and a sample has "
            f"{axes_words(dims, 'dimensions')}; give at most {axes_words(dims, 'numbers')}, such as "
            f"{'x'.join(['2'] * dims)}"
        )


def axes_words(count: int, nouns: str) -> str:
    """``one axis``, ``two dimensions``."""
    one = "axis" if nouns == "axes" else nouns[:-1]
    return f"one {one}" if count == 1 else f"{('no', '', 'two', 'three')[count]} {nouns}"
