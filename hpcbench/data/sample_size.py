"""The bytes of a sample on disk, as an application's module ``sizes`` computes them; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SampleSize:
    """Bytes of the files of a sample."""

    total: int
    inputs: int
    """Of which the array of inputs, whose rows `staging.slabs` may leave out."""
