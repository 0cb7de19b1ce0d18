"""Which runs count if there are more than the rules ask for: N in a row, whose score is the median of all such."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpcbench.mlperf.convergence_check import olympic


def median_window(seconds: Sequence[float], needed: int) -> int:
    """Return the index at which the window of ``needed`` consecutive runs begins.

    ``seconds`` are the times of the runs, infinite for failed ones. A window with more than one failed run counts as
    infinite. Of an even number of windows the slower of the two in the middle is chosen, and of equal ones the first.
    Source: training_rules.adoc, "More than N runs".
    """
    scores = [olympic(seconds[first : first + needed]) if needed >= 3 else math.inf
              for first in range(len(seconds) - needed + 1)]  # fmt: skip
    order = sorted(range(len(scores)), key=lambda first: (scores[first], first))
    return order[len(order) // 2]
