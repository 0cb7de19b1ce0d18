"""Runs that trained alike to the last digit: they are one observation, however many rows they are in.

For example, a node that draws its samples anew in each epoch trains like one that keeps them during the first epoch: if
the target is met in that epoch, the two rows are the same runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

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


def mark_copies(rows: Sequence[Row], curves: Mapping[str, Run]) -> list[Row]:
    """The rows, with the name of the earlier run in ``copies`` for each run that trained like an earlier one."""
    first: dict[tuple[tuple[str, ...], bytes], str] = {}
    marked = []
    for row in rows:
        copies = {}
        for run, state in row.runs:
            if run.name in curves and state.status in ("reached", "missed"):
                original = first.setdefault(trajectory(curves[run.name].epochs), run.name)
                if original != run.name:
                    copies[run.name] = original
        marked.append(replace(row, copies=copies))
    return marked
