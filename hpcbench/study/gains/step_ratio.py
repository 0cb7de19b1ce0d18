"""How much longer or shorter a step takes: the ratio to the baseline of the same repeat, with its interval.

Runs of a repeat follow one another, so that the state of the machine is nearly the same for all. The logarithms of
their ratios to the baseline are taken as a sample; its mean has Student's interval (Student, Biometrika 6, 1908), and
its difference from zero has Student's p-value. The noise of an option's run and of the baseline's is alike, so that the
logarithms scatter evenly to both sides. ``tests/hpcbench/study/gains/test_step_ratio.py`` simulates how often the
interval holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
LEAST_PAIRS = 2


@dataclass(frozen=True)
class StepRatio:
    """Step time over that of the baseline: the geometric mean over repeats, and its 95 % interval."""

    ratio: float
    interval: tuple[float, float]
    p: float
    """Two-sided p-value of no difference."""
    repeats: int


def step_ratio(option: Sequence[float], baseline: Sequence[float]) -> StepRatio | None:
    """The ratio from step times (seconds) of option and baseline, per repeat; ``None`` for fewer than two repeats."""
    if len(option) < LEAST_PAIRS:
        return None
    from hpcbench.probability import student_quantile, student_tail  # a status needs no SciPy

    logs = np.log(np.asarray(option) / np.asarray(baseline))
    middle, error = float(logs.mean()), float(logs.std(ddof=1)) / math.sqrt(len(logs))
    if error == 0:
        return StepRatio(math.exp(middle), (math.exp(middle), math.exp(middle)), 1.0 if middle == 0 else 0.0, len(logs))
    away = float(student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1)) * error
    p = 2 * float(student_tail(abs(middle) / error, len(logs) - 1))
    return StepRatio(math.exp(middle), (math.exp(middle - away), math.exp(middle + away)), p, len(logs))


def mean_difference(option: Sequence[float], baseline: Sequence[float]) -> tuple[float, bool]:
    """The mean difference over repeats, and whether its 95 % interval excludes zero."""
    from hpcbench.probability import student_quantile

    differences = np.asarray(option) - np.asarray(baseline)
    if len(differences) < LEAST_PAIRS:
        return (float(differences.mean()) if len(differences) else 0.0), False
    away = (
        float(student_quantile((1 + CONFIDENCE) / 2, len(differences) - 1))
        * float(differences.std(ddof=1))
        / math.sqrt(len(differences))
    )
    return float(differences.mean()), bool(abs(differences.mean()) > away)
