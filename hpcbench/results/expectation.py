"""Whether a run needed as many epochs as recorded runs of its preset: a sentence for its page."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Sequence

from hpcbench.config.read_yaml import read_yaml
from hpcbench.results import units
from hpcbench.results.records import Run
from hpcbench.results.references import ReferencePoint
from staging.errors import InputError

LEVEL = 0.95
"""Share of new runs of the recorded kind that lie within the interval."""
FEWEST = 3
"""The fewest recorded runs for which an interval is given."""
NOT_RECORDED = (
    "No verdict: no runs of this preset are recorded with the application. Compare this run with your own runs of "
    "other seeds (hpcbench report RUN RUN ...), or its step with what hpcbench characterize measures. For a published "
    "application, hpcbench predict says what time to expect of the machine."
)


def expectation(run: Run, points: Sequence[ReferencePoint]) -> str:
    """The verdict, or why there is none: other batches or targets, too few runs, or no recorded runs at all."""
    if not points:
        return NOT_RECORDED
    s = run.summary
    point = next(
        (
            candidate
            for candidate in points
            if (candidate.batch_size, candidate.target) == (s.global_batch_size, s.target)
        ),
        None,
    )
    if point is None:
        return "No verdict: these were recorded at another global batch or target."
    if len(point.epochs) < FEWEST:
        return f"No verdict: {units.counted(len(point.epochs), 'run')} cannot tell how much seeds differ."
    low, high = interval(point.epochs, evaluations(run))
    usual = f"between {units.epochs(low)} and {units.epochs(high)}, as 95 % of new runs of this preset should"
    if run.reached and s.epochs_to_target is not None:
        is_usual = low <= s.epochs_to_target <= high
        yes, comma = ("Yes", ",") if is_usual else ("No", ", not")
        return f"{yes}: it reached the target after {units.counted_epochs(s.epochs_to_target)}{comma} {usual}."
    if s.epochs <= high:
        return f"No verdict: it ended after {units.counted_epochs(s.epochs)}, and may need up to {units.epochs(high)}."
    return f"No: it missed the target in {units.counted_epochs(s.epochs)}, and should have reached it {usual}."


def interval(epochs: Sequence[float], evaluations_per_epoch: float = 1) -> tuple[float, float]:
    """The epochs between which a new run's lie at ``LEVEL``, by Student's t, rounded outwards to an evaluation."""
    from hpcbench.probability import student_quantile  # other pages need no SciPy

    count = len(epochs)
    half = student_quantile((1 + LEVEL) / 2, count - 1) * statistics.stdev(epochs) * math.sqrt(1 + 1 / count)
    mean, step = statistics.fmean(epochs), evaluations_per_epoch
    return max(1.0, math.floor((mean - half) * step)) / step, math.ceil((mean + half) * step) / step


def evaluations(run: Run) -> int:
    """Evaluations per epoch: as the run was configured, else as its evaluations lie."""
    with contextlib.suppress(InputError, KeyError, TypeError, ValueError):
        return max(1, int(read_yaml(run.folder.config)["train"]["evaluations_per_epoch"]))
    numbers = [] if run.epochs.empty else [float(number) for number in run.epochs["epoch"] if number > 0]
    if not numbers:
        return 1
    return max(1, sum(number <= 1 for number in numbers) if max(numbers) >= 1 else round(1 / min(numbers)))
