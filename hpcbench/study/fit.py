"""Epochs to target against batch size, epochs(B) = E_min (1 + B / B_crit), fitted with confidence intervals.

The form is that of McCandlish et al., "An Empirical Model of Large-Batch Training" (2018), whose hyperbola of steps S
and samples E, (S / S_min - 1)(E / E_min - 1) = 1, is E = E_min + S_min B. It holds if each batch has its own best
learning rate (Shallue et al., "Measuring the Effects of Data Parallelism on Neural Network Training", 2019); with a
recipe borrowed from another batch the scatter is the recipe's.

Every run that ended counts. One that met its target at an evaluation took more epochs than had passed at the previous
evaluation; one that missed the target would have taken more than it made. Epochs scatter between seeds by a part of
their mean, and batches also scatter about the line (``epoch_likelihood``). The line is that of the largest likelihood,
and intervals are those of the profile likelihood (``epoch_profile``), at the bound that makes them exact for normal
scatter: (f + 2) log(1 + F / f), with F the quantile of Fisher's distribution with 1 and f degrees of freedom. f is
b - 2 for b batches with a run that reached the target if the most probable scatter of the batches is not zero,
otherwise n - 2 for n runs. A batch at which all runs missed the target bounds the line and tells nothing of the
scatter.
``benchmarks/interval_coverage.py`` measures how often the intervals contain the true value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from hpcbench.probability import chi_squared_tail, f_quantile
from hpcbench.study.epoch_likelihood import Floats
from hpcbench.study.epoch_profile import EpochProfile, Lines, Peak
from hpcbench.study.epoch_run import LEAST_BATCHES, EpochRun
from staging.errors import InputError

Interval = tuple[float, float]

CONFIDENCE = 0.95
INTERVAL_BATCHES = 6
"""With fewer batches the scatter about the line is not known well enough for intervals."""
LEVEL = 0.05
"""A note names the scatter of the batches about the line if its p-value is below this."""
NO_SCATTER = 1e-3
"""Scatter of the batches up to this counts as none."""
UNKNOWN: Interval = (math.nan, math.nan)


@dataclass(frozen=True)
class EpochFit:
    """E_min (epochs) and B_crit (samples) with their 95 % intervals; not-a-number if nothing can be fitted.

    ``b_crit`` is infinite if epochs do not grow with the batch, and 0 if they grow in proportion to it or faster.
    Intervals are not-a-number for fewer than six batches, and where evaluations hide the spread between seeds.
    """

    runs: tuple[EpochRun, ...]
    e_min: float
    e_min_interval: Interval
    b_crit: float
    b_crit_interval: Interval
    slope: float
    """E_min / B_crit in epochs per sample: the fewest optimizer steps, divided by the samples of an epoch."""
    spread: float
    """Standard deviation between seeds, as a part of the mean."""
    scatter: float
    """Standard deviation of the batches about the line, in addition to that of their seeds, as a part of the mean."""
    scatter_p: float
    """Chance of as much scatter or more if there is none, from the likelihood ratio (Self and Liang, 1987)."""
    note: str
    """What a reader must know in addition to the numbers, in words; empty if there is nothing."""
    lines: Lines | None = None
    """The confidence region; ``None`` if there are no intervals."""
    middle: float = math.nan
    """The batch size to which ``lines`` refer."""

    @property
    def n(self) -> int:
        """Number of runs, including those that missed the target."""
        return len(self.runs)

    @property
    def batch_sizes(self) -> Floats:
        """The batch size of every run, in samples."""
        return np.array([run.batch_size for run in self.runs])

    @property
    def batches(self) -> int:
        """Number of distinct batch sizes."""
        return len(np.unique(self.batch_sizes))

    @property
    def delay(self) -> float:
        """Mean epochs between meeting the target and the evaluation that ends the run: half of those between two."""
        return median([run.up_to - run.above for run in self.runs if run.reached] or [0.0]) / 2

    def predict(self, batch_sizes: npt.ArrayLike) -> Floats:
        """Mean epochs that the fit gives for other batch sizes until the target is met; runs end ``delay`` later."""
        return self.e_min + self.slope * np.asarray(batch_sizes, dtype=np.float64)

    def band(self, batch_sizes: npt.ArrayLike) -> tuple[Floats, Floats]:
        """The 95 % interval of the mean epochs to target at each batch size; not-a-number if there is none."""
        batch = np.asarray(batch_sizes, dtype=np.float64)
        if self.lines is None:
            return np.full(batch.shape, math.nan), np.full(batch.shape, math.nan)
        return _ends(self.lines, batch / self.middle)


def fit_epochs(runs: Sequence[EpochRun]) -> EpochFit:
    """Fit runs that ended, one observation each; one that missed the target in no epochs says nothing and is left out.

    Raises ``InputError`` for batch sizes that are not positive, and for epochs that do not form an interval.
    """
    _check(runs)
    runs = [run for run in runs if run.reached or run.above > 0]
    reached = len(_batches_reached(runs))
    if reached < LEAST_BATCHES:
        sizes = "batch size" if reached == 1 else "batch sizes"
        return _unfitted(runs, f"{reached} {sizes}: a fit needs runs that reached the target at {LEAST_BATCHES}")
    if not any(run.above for run in runs):
        return _unfitted(runs, "all runs met the target at the first evaluation: no fit; evaluate more often")
    with threadpool_limits(1):  # matrices have four rows, so threads would cost more than they save
        return _fitted(runs)


def _fitted(runs: Sequence[EpochRun]) -> EpochFit:
    profile = EpochProfile(runs)
    best = profile.best()
    p = 1.0
    if best.scatter > NO_SCATTER:
        ratio = 2 * (best.value - EpochProfile(runs, with_scatter=False).best().value)
        p = float(chi_squared_tail(ratio, 1)) / 2
    hidden = profile.hides(best)
    has_intervals = len({run.batch_size for run in runs}) >= INTERVAL_BATCHES and not hidden
    lines = profile.lines(best, loss_bound(freedom(runs, best))) if has_intervals else None
    e_min, slope = _of_share(best.share, math.exp(best.log_middle), profile.middle)
    return EpochFit(
        runs=tuple(runs), e_min=e_min, e_min_interval=_interval_at(lines, 0.0),
        b_crit=_b_crit(best.share, profile.middle), b_crit_interval=_b_crit_interval(lines, profile.middle),
        slope=slope, spread=_as_part(math.exp(best.log_spread)),
        scatter=_as_part(best.scatter), scatter_p=p, note="; ".join(_notes(runs, best, p, lines, hidden)), lines=lines,
        middle=profile.middle,
    )  # fmt: skip


def freedom(runs: Sequence[EpochRun], best: Peak) -> int:
    """Degrees of freedom of the error of a line with the scatter of ``best``: those of the batches if they scatter."""
    if best.scatter <= NO_SCATTER:
        return len(runs) - 2
    return max(len(_batches_reached(runs)) - 2, 1)


def loss_bound(degrees: float) -> float:
    """How much twice the log-likelihood may lose within a 95 % interval, with this many degrees of freedom."""
    return (degrees + 2) * math.log1p(float(f_quantile(CONFIDENCE, 1, degrees)) / degrees)


def _check(runs: Sequence[EpochRun]) -> None:
    for run in runs:
        if not (math.isfinite(run.batch_size) and run.batch_size > 0):
            raise InputError(f"a batch size of {run.batch_size:g} cannot be fitted; it must be above 0")
        if not 0 <= run.above < run.up_to:
            raise InputError(
                f"epochs above {run.above:g} and up to {run.up_to:g} cannot be fitted; the first must be at least 0 "
                "and less than the second"
            )


def _batches_reached(runs: Sequence[EpochRun]) -> set[float]:
    """The batch sizes with a run that reached the target."""
    return {run.batch_size for run in runs if run.reached}


def _unfitted(runs: Sequence[EpochRun], note: str) -> EpochFit:
    nan = math.nan
    return EpochFit(tuple(runs), nan, UNKNOWN, nan, UNKNOWN, nan, nan, nan, nan, note)


def _notes(runs: Sequence[EpochRun], best: Peak, p: float, lines: Lines | None, hidden: bool) -> list[str]:
    """What a reader must know in addition to the numbers."""
    notes = []
    missed, batches = sum(not run.reached for run in runs), len({run.batch_size for run in runs})
    reached = len(_batches_reached(runs))
    if missed:
        treated = "are treated as needing more epochs than they were allowed"
        notes.append(f"{missed} of {len(runs)} runs did not reach the target, and {treated}")
    if reached < min(batches, INTERVAL_BATCHES):
        notes.append(f"runs reached the target at {reached} of {batches} batch sizes")
    if p < LEVEL:
        notes.append(
            f"batches scatter by {100 * _as_part(best.scatter):.2g} % beside their seeds (p {_probability(p)})"
        )
    if best.share == 1:
        notes.append("epochs do not grow with the batch: B_crit is unbounded, E_min the mean")
    if best.share == 0:
        notes.append("epochs grow in proportion to the batch or faster: E_min and B_crit are not above 0")
    if hidden:
        notes.append("evaluations are too far apart to tell how far seeds spread: no intervals; evaluate more often")
        return notes
    if lines is None:
        notes.append(f"{batches} batch sizes: intervals need {INTERVAL_BATCHES}")
        return notes
    if lines.is_proportional and best.share > 0:
        notes.append("E_min may be zero: B_crit has no lower bound")
    if lines.is_flat and best.share < 1:
        notes.append("the slope may be zero: B_crit has no upper bound")
    return notes


def _of_share(share: float, middle_epochs: float, middle: float) -> tuple[float, float]:
    """E_min and slope of a line from its epochs at the middle batch."""
    return share * middle_epochs, (1 - share) * middle_epochs / middle


def _b_crit(share: float, middle: float) -> float:
    return math.inf if share == 1 else middle * share / (1 - share)


def _b_crit_interval(lines: Lines | None, middle: float) -> Interval:
    if lines is None:
        return UNKNOWN
    return _b_crit(float(lines.shares[0]), middle), _b_crit(float(lines.shares[-1]), middle)


def _interval_at(lines: Lines | None, relative: float) -> Interval:
    if lines is None:
        return UNKNOWN
    low, high = _ends(lines, np.array(relative))
    return float(low), float(high)


def _ends(lines: Lines, relative: Floats) -> tuple[Floats, Floats]:
    """The fewest and the most epochs of all lines at batches relative to the middle one."""
    shares = lines.shares.reshape(-1, *[1] * relative.ndim)
    with np.errstate(divide="ignore", over="ignore"):
        growth = np.log(shares + (1 - shares) * relative)
        middles, halves = (per_line.reshape(shares.shape) for per_line in (lines.log_middles, lines.halves))
        return np.exp((middles + growth - halves).min(0)), np.exp((middles + growth + halves).max(0))


def _as_part(deviation: float) -> float:
    """The standard deviation of a log-normal number over its mean, from that of its logarithm."""
    return math.sqrt(math.expm1(deviation**2))


def _probability(p: float) -> str:
    return "below 0.0001" if p < 1e-4 else f"{p:.2g}"
