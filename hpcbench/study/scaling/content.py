"""The content of the page of a scaling study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcbench.study.scaling.point_results import Mode, PointResult
from hpcbench.study.scaling.proposal import Line
from hpcbench.study.scaling.scaling_laws import SpeedFit
from hpcbench.study.scaling.time_to_solution import Solution


@dataclass(frozen=True)
class Content:
    """Everything that the page shows."""

    title: str
    """What the application trains, in words."""
    mode: Mode
    application: str
    preset: str
    site: str
    simulated: bool
    """Whether nodes are groups of processes on one machine."""
    rows: Sequence[PointResult]
    """Rows of the page; some of them have runs."""
    fits: Mapping[str, SpeedFit]
    """The fit of each variant; ``solutions`` are by variant, too."""
    solutions: Mapping[str, Sequence[Solution]]
    proposal: Sequence[Line] | None
    commands: Sequence[str]
    machine: str
    """What the runs ran on, in one line."""
    notes: Sequence[str]
    """What else a reader must know."""
    steps: int | None
    """Optimizer steps of a run, including the warm-up; unset if runs train to the target."""
    warmup_steps: int
