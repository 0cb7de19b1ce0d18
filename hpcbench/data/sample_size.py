"""The bytes of a sample on disk, as an application's module ``sizes`` computes them; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SampleSize:
    """Bytes of a sample's files."""

    total: int
    inputs: int
    """The part of ``total`` that is the array of inputs, whose rows `staging.slabs` may leave out."""
