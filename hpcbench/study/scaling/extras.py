"""What the page of a scaling study joins to the measurements."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcbench.study.scaling.proposal import Campaign


@dataclass(frozen=True)
class Extras:
    """What the page joins to the measurements."""

    convergence: str | None = None
    """Folder of a convergence study of the same application, or ``none``; unset: the one that the study remembers."""
    campaign: Campaign = field(default_factory=Campaign)
    """What the proposal table is for."""
