"""Whether an option changes the quality after equal samples: the permutation test by which studies compare epochs.

Qualities of the seeds of an option and of the baseline are ranked; if the option changes nothing, every way of
assigning them to the two is equally likely, so that the p-value is exact (``hpcbench.study.epoch_comparison``). A run
that diverged is worse than any that did not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.study.epoch_comparison import LEVEL, p_value
from hpcbench.study.epoch_run import EpochRun


@dataclass(frozen=True)
class QualityTest:
    """Quality of an option's seeds beside the baseline's."""

    p: float
    """Two-sided p-value of no difference."""
    least_p: float
    """The smallest p-value that this many seeds can give."""
    worse: bool
    """Whether the option's quality is worse in most pairs."""


def quality_test(option: Sequence[float | None], baseline: Sequence[float | None], better: str) -> QualityTest | None:
    """Compare qualities, ``None`` for a run that diverged; ``better`` is ``lower`` or ``higher``.

    Returns ``None`` if one side has no run.
    """
    if not option or not baseline:
        return None
    sign = 1.0 if better == "lower" else -1.0
    first, second = ([as_loss(value, sign) for value in values] for values in (option, baseline))
    runs = [[EpochRun(1, value, value) for value in values] for values in (first, second)]
    worse = sum((a > b) - (a < b) for a in first for b in second)
    return QualityTest(p_value([(runs[0], runs[1])]), least_p(len(first), len(second)), worse > 0)


def as_loss(value: float | None, sign: float) -> float:
    """The quality as a number for which less is better."""
    return math.inf if value is None else sign * value


def least_p(first: int, second: int) -> float:
    """The smallest two-sided p-value of this many seeds on each side: the sides fully separated, either way."""
    return min(1.0, 2 / math.comb(first + second, first))


def seeds_needed(comparisons: int) -> int:
    """Fewest seeds per side with which one of this many comparisons made together can show a difference."""
    seeds = 2
    while comparisons * least_p(seeds, seeds) > LEVEL:
        seeds += 1
    return seeds
