"""The table of what a training to the target takes on each size of a scaling study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hpcbench.results import units
from hpcbench.study.scaling.table import Sheet, titled
from hpcbench.study.scaling.time_to_solution import Solution


def solution_sheets(solutions: Mapping[str, Sequence[Solution]]) -> list[Sheet]:
    """For each variant what one training to the target takes on every size, with GPU-hours if nodes have GPUs.

    Sizes without an interval of their node-hours show the figure alone.
    """
    gpus = any(solution.gpu_hours is not None for members in solutions.values() for solution in members)
    sure = any(not math.isnan(one.node_hours_interval[0]) for members in solutions.values() for one in members)
    hours = "node-hours (95 %)" if sure else "node-hours"
    headers = ["nodes", "batch", "epochs (95 %)", "time", hours, "GPU-hours" if gpus else "core-hours"]
    sheets = []
    for variant, members in solutions.items():
        lines = []
        for solution in members:
            cells = [f"{solution.nodes:,}", f"{solution.global_batch_size:,}" + ("*" if solution.extrapolated else "")]
            cells += [units.interval(solution.epochs, solution.epochs_interval), units.duration(solution.time_s)]
            cells.append(units.interval(solution.node_hours, solution.node_hours_interval))
            lines.append([*cells, units.significant(solution.gpu_hours if gpus else solution.core_hours)])
        if lines:
            sheets.append(Sheet(titled(variant, "a training to the target"), headers, lines))
    return sheets
