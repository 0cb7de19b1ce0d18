"""The statistic of a campaign's metric over the runs of a size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from hpcbench.campaign.rules import Scenario
from hpcbench.mlperf.convergence_check import olympic


def over_runs(scenario: Scenario, values: Sequence[float], lost: int) -> float | None:
    """The scenario's median, mean or olympic mean of ``values`` and of ``lost`` infinite ones.

    ``None`` if there is no value, and for an olympic mean of too few or with more than one infinite value.
    """
    every = [*values, *[math.inf] * lost]
    if scenario.metric.statistic == "olympic":
        return olympic(every) if lost <= 1 and len(every) >= max(3, scenario.replicates) else None
    if not every:
        return None
    return median(every) if scenario.metric.statistic == "median" else fmean(every)
