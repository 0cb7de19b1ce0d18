"""Runs that trained alike to the last digit: they are one observation, however many rows they are in.

For example, a node that draws its samples anew in each epoch trains like one that keeps them during the first epoch: if
the target is met in that epoch, the two rows are the same runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hpcbench.results.summary import Summary
from hpcbench.study.plan import PlannedRun
from hpcbench.study.results import Row

if TYPE_CHECKING:
    import pandas as pd

    from hpcbench.results.records import Run

TIMES = ("train_s", "eval_s", "elapsed_s", "samples_per_s")
"""Columns of ``epochs.csv`` that differ between runs that train alike."""


def trajectory(epochs: pd.DataFrame) -> tuple[tuple[str, ...], bytes]:
    """What a run's evaluations found, without its times: names of the columns, and their values to the last bit."""
    names = tuple(str(name) for name in epochs if name not in TIMES)
    return names, epochs[list(names)].to_numpy(dtype=np.float64).tobytes()


def divergence(row: Row, run: PlannedRun, summary: Summary) -> Hashable:
    """Where and why a run diverged, maybe before any evaluation, with what it has in common with a run like it.

    Seeds and optimizers that are not alike may diverge at the same step, too, and for the same reason.
    """
    point = row.point
    preset = "" if point.source.isdigit() else point.source
    recipe = (point.batch, point.optimizer, row.rate, preset, run.seed)
    return recipe, summary.steps, summary.samples, summary.cause, summary.reason, summary.noise_scale


def mark_copies(rows: Sequence[Row], curves: Mapping[str, Run]) -> list[Row]:
    """The rows, with the name of the earlier run in ``copies`` for each run that trained like an earlier one."""
    first: dict[Hashable, str] = {}
    marked = []
    for row in rows:
        copies = {}
        for run, state in row.runs:
            found: Hashable = trajectory(curves[run.name].epochs) if run.name in curves else None
            if state.status == "diverged" and state.summary is not None:
                found = found, divergence(row, run, state.summary)
            elif state.status not in ("reached", "missed"):
                continue
            if found is not None and (original := first.setdefault(found, run.name)) != run.name:
                copies[run.name] = original
        marked.append(replace(row, copies=copies))
    return marked
