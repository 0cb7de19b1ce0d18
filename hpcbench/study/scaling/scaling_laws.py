"""The laws of strong and weak scaling, fitted to throughput with confidence intervals.

Strong scaling follows Amdahl ("Validity of the single processor approach to achieving large scale computing
capabilities", 1967): a sample takes t(n) = t(n0) (s + (1 - s) n0 / n). Weak scaling follows Gustafson ("Reevaluating
Amdahl's law", 1988): the throughput is r(n) = r(n0) (n / n0 - alpha (n / n0 - 1)). Sizes are relative to n0, the
smallest one measured: what is serial there, within its nodes, is in neither fraction.

Both are a line y = a x + b (1 - x) with the fraction b / a, where y is t or r and x is n0 / n or n / n0. Repeats spread
by a part of their mean and so weigh 1 / y^2, as in ``weighted_line``; the interval of the fraction is Fieller's, that
of a ratio of two estimates.

The F test for lack of fit against pure error (Draper and Smith, "Applied Regression Analysis", 3rd edition, 1998,
section 2.1) decides at a level of 5 % whether the sizes follow the law. It finds a kink, all sizes beyond one of them
10 % below the law, in over 90 % of studies whose repeats scatter by 1 %, with three repeats of each of four or more
sizes. If the repeats at hand would find it less often, by the noncentral F distribution, the note says how often.

Sizes may also differ by less than that test finds, since all repeats of a size can share an allocation or a time of
day. So the intervals are of the repeats only where the same test has a p-value of at least ``POOLED_FROM``; a test that
decides whether two scatters are pooled needs a much higher level than one that reports a finding (Bancroft, "On biases
in estimation due to the use of preliminary tests of significance", 1944). Then 90 to 99 % of the intervals hold the
truth, in simulations of 3 to 7 sizes that share none, half, all or twice the scatter of their repeats; with a level of
5 % it is 77 to 96 %.

The level holds for repeats that scatter by the same part of the throughput at every size. If that part grows fourfold
from the smallest size to the largest, up to 10 % of studies that follow the law are said to miss it; if all sizes of
one repeat share a part of their scatter, fewer than 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from hpcbench.probability import student_quantile
from hpcbench.results.units import significant
from hpcbench.study.scaling.weighted_line import (
    CONFIDENCE,
    MISFIT,
    Floats,
    Interval,
    Line,
    fit_line,
    lack_of_fit,
    power,
    pure_error,
)
from staging.errors import InputError

Law = Literal["Amdahl", "Gustafson"]

POOLED_FROM = 0.5
"""Least p-value of the test for lack of fit at which the scatter of repeats stands for that of sizes."""
LEAST_SIZES = 3
"""Fewest sizes: two numbers are fitted, and one more size shows whether they fit."""
KINK = 0.1
"""How much slower than the law sizes beyond a kink are, as a part of their throughput."""
POWER = 0.9
"""A note names a kink as missed if it is found less often than this."""
FAR = 2.0
"""A note calls a limit extrapolated if it is more than this many times the speed-up at the largest size."""
ROUNDING = 1e-9
"""Fractions closer to 0 are 0."""
NOWHERE: Interval = (math.nan, math.nan)


@dataclass(frozen=True)
class SpeedFit:
    """A law's fraction and throughput at the smallest size; not-a-number if nothing can be fitted."""

    law: Law
    nodes: Floats
    """Nodes of every repeat."""
    samples_per_s: Floats
    """Throughput of every repeat."""
    fraction: float
    """Serial fraction of the time on the smallest size (Amdahl) or of the time on every size (Gustafson); below 0 if
    scaling is super-linear, above 1 if throughput falls with nodes."""
    interval: Interval
    """95 % interval of the fraction."""
    base: float
    """Samples per second at the smallest size."""
    limit: float
    """Limit of the speed-up over the smallest size: 1 / fraction by Amdahl, infinite if the fraction is not above 0;
    always infinite by Gustafson."""
    limit_interval: Interval
    ends: Floats
    """a and b of the line, (2,): seconds per sample (Amdahl) or samples per second (Gustafson)."""
    covariance: Floats
    """Covariance of a and b, (2, 2)."""
    quantile: float
    """Quantile of Student's t that turns a standard error into half an interval."""
    error: Literal["repeats", "sizes"]
    """What the intervals are based on: the scatter of repeats, or that of the sizes' means about the law."""
    lack_of_fit_p: float
    """Chance of means this far from the law through the scatter of repeats alone; not-a-number if not testable."""
    note: str
    """What a reader must know in addition to the numbers, in words; empty if there is nothing."""

    def predict(self, nodes: npt.ArrayLike) -> Floats:
        """Samples per second on other numbers of nodes."""
        return self._rates(self._weights(nodes) @ self.ends)

    def band(self, nodes: npt.ArrayLike) -> tuple[Floats, Floats]:
        """The 95 % interval of the mean samples per second at each number of nodes."""
        weights = self._weights(nodes)
        middle = weights @ self.ends
        variance = np.einsum("...i,ij,...j->...", weights, self.covariance, weights)
        half = self.quantile * np.sqrt(np.maximum(variance, 0))
        low, high = self._rates(middle - half), self._rates(middle + half)
        return (high, low) if self.law == "Amdahl" else (low, high)

    def _weights(self, nodes: npt.ArrayLike) -> Floats:
        """Weights of a and b at each number of nodes, (..., 2)."""
        x = _abscissa(self.law, nodes, float(self.nodes.min()) if len(self.nodes) else math.nan)
        return np.stack([x, 1 - x], axis=-1)

    def _rates(self, line: Floats) -> Floats:
        """Samples per second for values ``line`` of the line; a value below 0 means no time, or no throughput."""
        if self.law == "Gustafson":
            return np.maximum(line, 0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(line <= 0, math.inf, 1 / line), dtype=np.float64)


def fit_amdahl(nodes: Sequence[float], samples_per_s: Sequence[float]) -> SpeedFit:
    """Fit strong scaling, one observation per repeat; see ``SpeedFit``.

    If the means of the sizes are further from the law than the scatter of repeats easily explains (p below
    ``POOLED_FROM`` in the F test for lack of fit), each size is one observation, and the intervals are the wider ones
    that follow; below 5 %, a note says that the law is missed. Raises ``InputError`` for
    lengths that differ and for numbers that are not positive.
    """
    return _fit("Amdahl", nodes, samples_per_s)


def fit_gustafson(nodes: Sequence[float], samples_per_s: Sequence[float]) -> SpeedFit:
    """Fit weak scaling, as ``fit_amdahl`` does strong scaling."""
    return _fit("Gustafson", nodes, samples_per_s)


def _fit(law: Law, nodes: Sequence[float], samples_per_s: Sequence[float]) -> SpeedFit:
    sizes, rates = _observations(nodes, samples_per_s)
    distinct = np.unique(sizes)
    if len(distinct) < LEAST_SIZES:
        plural = "" if len(distinct) == 1 else "s"
        return _unfitted(law, sizes, rates, f"{len(distinct)} size{plural}: a fit needs runs at {LEAST_SIZES}")
    x, y = _abscissa(law, sizes, float(distinct[0])), 1 / rates if law == "Amdahl" else rates
    error: Literal["repeats", "sizes"] = "repeats"
    line, notes = fit_line(x, y), []
    p = lack_of_fit(x, y, line)
    untested = [] if p < MISFIT else _missed(law, sizes, x, y, line)
    if p < POOLED_FROM:
        at = np.unique(x)
        line, error = fit_line(at, np.array([y[x == abscissa].mean() for abscissa in at])), "sizes"
    if p < MISFIT:
        notes = [f"sizes miss the law by more than repeats explain (p {p:.1g}), so intervals are of their means"]
    to_ends = np.array([[1.0, 1.0], [1.0, 0.0]])  # a is the line at x = 1, b is the line at x = 0
    ends, covariance = to_ends @ line.coefficients, to_ends @ line.covariance @ to_ends.T
    if ends[0] <= 0:
        return _unfitted(law, sizes, rates, "the nearest line has no throughput at the smallest size")
    quantile = float(student_quantile((1 + CONFIDENCE) / 2, line.freedom))
    fraction, interval = _ratio(ends, covariance, quantile)
    limit, limit_interval = _limit(law, fraction, interval)
    base = float(1 / ends[0] if law == "Amdahl" else ends[0])
    fit = SpeedFit(
        law, sizes, rates, fraction, interval, base, limit, limit_interval, ends, covariance, quantile, error, p, ""
    )
    return replace(fit, note="; ".join(notes + _notes(fit) + untested))


def _missed(law: Law, sizes: Floats, x: Floats, y: Floats, line: Line) -> list[str]:
    """A note on the kink that the test for lack of fit would miss too often, or that the sizes cannot be tested."""
    distinct = np.unique(sizes)
    variance, freedom = pure_error(x, y, line)
    if not freedom:
        return ["one run at each size: whether they follow the law cannot be tested"]
    shift = 1 / (1 - KINK) - 1 if law == "Amdahl" else -KINK  # of seconds per sample, or of samples per second
    powers = {last: power(x, y, line, np.where(sizes > last, shift, 0.0)) for last in distinct[:-1].tolist()}
    last = min(powers, key=lambda size: powers[size])
    if powers[last] >= POWER:
        return []
    return [
        f"a kink of {100 * KINK:.0f} % beyond {last:,.0f} node{'' if last == 1 else 's'} would be missed here in "
        f"{100 * (1 - powers[last]):.0f} of 100 such studies, as repeats scatter by {100 * math.sqrt(variance):.1f} %"
    ]


def _observations(nodes: Sequence[float], samples_per_s: Sequence[float]) -> tuple[Floats, Floats]:
    sizes, rates = np.asarray(nodes, dtype=np.float64), np.asarray(samples_per_s, dtype=np.float64)
    if sizes.ndim != 1 or sizes.shape != rates.shape:
        raise InputError(f"a fit takes the nodes and the throughput of each repeat, not {sizes.size} and {rates.size}")
    for name, values in (("number of nodes", sizes), ("throughput", rates)):
        wrong = values[~(np.isfinite(values) & (values > 0))]
        if len(wrong):
            raise InputError(f"a {name} of {wrong[0]:g} cannot be fitted; it must be above 0")
    return sizes, rates


def _unfitted(law: Law, sizes: Floats, rates: Floats, note: str) -> SpeedFit:
    nan, ends, covariance = math.nan, np.full(2, math.nan), np.full((2, 2), math.nan)
    return SpeedFit(law, sizes, rates, nan, NOWHERE, nan, nan, NOWHERE, ends, covariance, nan, "repeats", nan, note)


def _abscissa(law: Law, nodes: npt.ArrayLike, smallest: float) -> Floats:
    """x of the line: the part of the work that each node has, or the factor in nodes."""
    factor = np.asarray(nodes, dtype=np.float64) / smallest
    return 1 / factor if law == "Amdahl" else factor


def _ratio(ends: Floats, covariance: Floats, quantile: float) -> tuple[float, Interval]:
    """b / a, and its values f for which a t test does not reject b - f a = 0: u f^2 - 2 v f + w <= 0."""
    (a, b), t2 = ends.tolist(), quantile**2
    (of_a, of_both), (_, of_b) = covariance.tolist()
    u, v, w = a * a - t2 * of_a, a * b - t2 * of_both, b * b - t2 * of_b
    if u <= 0:
        return b / a, (-math.inf, math.inf)
    root = math.sqrt(max(0.0, v * v - u * w))
    return b / a, ((v - root) / u, (v + root) / u)


def _limit(law: Law, fraction: float, interval: Interval) -> tuple[float, Interval]:
    """The limit of the speed-up, with its interval."""
    if law == "Gustafson":
        return math.inf, (math.inf, math.inf)
    limit, high, low = (1 / serial if serial > ROUNDING else math.inf for serial in (fraction, *interval))
    return limit, (low, high)


def _notes(fit: SpeedFit) -> list[str]:
    """What the points do not support, or show in addition to the law."""
    (low, high), notes = fit.interval, []
    if min(high, 1) - max(low, 0) > 0.5:
        return ["the fraction's interval spans more than half of 0 to 1: too few or too noisy points for a serial part"]
    if fit.fraction < -ROUNDING:
        notes.append(_super_linear(fit))
    elif fit.law == "Amdahl" and low <= ROUNDING:
        notes.append("the serial fraction may be 0: the limit has no upper bound")
    if fit.fraction > 1:
        notes.append("throughput falls with nodes, for which the law has no term")
    largest = fit.nodes.max()
    reached = float(fit.predict(largest)) / fit.base
    if fit.law == "Amdahl" and FAR * reached < fit.limit < math.inf:
        notes.append(
            f"the limit of {significant(fit.limit)} is extrapolated from a speed-up of {significant(reached)} on "
            f"{largest:,.0f} nodes"
        )
    return notes


def _super_linear(fit: SpeedFit) -> str:
    limit = "; no limit is given" if fit.law == "Amdahl" else ""
    if fit.interval[1] >= 0:
        return f"the serial fraction is below 0 by no more than the scatter{limit}"
    why = {
        "Amdahl": "caches, or the smaller share of the batch per rank, usually explain it",
        "Gustafson": "caches of the data usually explain it, or a smallest size that was slow",
    }
    return f"scaling is super-linear (serial fraction below 0): {why[fit.law]}{limit}"
