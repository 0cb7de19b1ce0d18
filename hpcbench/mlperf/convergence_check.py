"""The test of a submission's epochs against the reference convergence points, by the official checker's own numbers.

Points, pruning, interpolation and the least accepted mean come from ``RCP_Checker`` of ``mlperf_logging``, which finds
that mean by bisection to 1e-4 epochs. Its commands read folders and write to them; this module does neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from statistics import fmean
from typing import Any, Literal

from hpcbench.mlperf.log_cache import LogCache, Reading
from hpcbench.mlperf.rulesets import check_ruleset
from staging.errors import InputError

RUNS = {"cosmoflow": 10, "deepcam": 5, "oc20": 5, "openfold": 10}
"""Runs of a time-to-train entry, and the fewest instances of a throughput entry."""

SAMPLES_AS_EPOCHS = "openfold"
"""Its ``epoch_num`` is a number of samples, in logs and in reference convergence points."""

ReferenceKind = Literal["point", "interpolated", "smaller than all points", "larger than all points", "none"]


@dataclass(frozen=True)
class ConvergenceTest:
    """The result of the test."""

    passed: bool
    reference_kind: ReferenceKind
    """Which reference it was compared with: a point at its batch, one between two, or that of the smallest batch."""
    mean_epochs: float | None
    """Olympic mean of the submission; ``None`` if more than one run did not converge."""
    reference_epochs: float | None
    """Olympic mean of the reference."""
    least_epochs: float | None
    """The least mean that is accepted."""
    factor: float
    """The normalisation factor, by which the score of a faster convergence within the limits is multiplied; else 1."""
    unit: Literal["epochs", "samples"] = "epochs"
    """What the means count: for OpenFold training samples, as its points do."""

    @property
    def words(self) -> str:
        """The result in a sentence."""
        if self.mean_epochs is None:
            return "more than one run did not converge"
        if self.least_epochs is None or self.reference_epochs is None:
            return "no reference convergence point is near; one must be submitted with it"
        against = {"point": "the reference", "interpolated": "the interpolated reference"}.get(
            self.reference_kind, "the reference of the smallest batch"
        )
        verdict = "accepted" if self.passed else "too fast"
        scaled = f", normalised by {self.factor:.4f}" if self.passed and self.factor > 1 else ""
        digits = ",.0f" if self.unit == "samples" else ".4g"
        return (
            f"{self.mean_epochs:{digits}} {self.unit}, {against} {self.reference_epochs:{digits}}, "
            f"least accepted {self.least_epochs:{digits}}: {verdict}{scaled}"
        )


def has_points(application: str, ruleset: str) -> bool:
    """Whether the rules have reference convergence points for an application."""
    return application in RUNS and (application != "openfold" or ruleset == "3.0.0")


def check_has_points(application: str, ruleset: str) -> None:
    """Raise ``InputError`` if the rules have no reference convergence points for an application."""
    if not has_points(application, check_ruleset(ruleset)):
        raise InputError(f"ruleset {ruleset} has no reference convergence points of {application}")


@cache
def checker(application: str, ruleset: str) -> Any:
    """Return the official checker for an application. Raises ``InputError`` if the rules have no points for it."""
    check_has_points(application, ruleset)
    from mlperf_logging.rcp_checker.rcp_checker import RCP_Checker

    return RCP_Checker("hpc", ruleset, application, verbose=False)


def olympic(values: Sequence[float]) -> float:
    """Return the mean of at least three values without the lowest and the highest."""
    return fmean(sorted(values)[1:-1])


def check_convergence(
    application: str,
    ruleset: str,
    batch: int,
    epochs: Sequence[float | None],
    pruned: bool = True,
    log_cache: LogCache | None = None,
) -> ConvergenceTest:
    """Test ``epochs`` of an entry's runs (``None`` for a run that did not converge) at the global batch ``batch``.

    ``epochs`` are as logged in ``epoch_num``: of OpenFold they are training samples, and so are the means returned.
    ``pruned`` leaves out reference points that converge more slowly than the line between their neighbours, as the
    package checker does. The reference is taken from ``log_cache`` if it is there. Raises ``InputError`` for fewer than
    three runs, or for an application without points.
    """
    import numpy as np

    check_has_points(application, ruleset)
    unit: Literal["epochs", "samples"] = "samples" if application == SAMPLES_AS_EPOCHS else "epochs"
    if len(epochs) < 3:
        raise InputError(f"an olympic mean needs at least 3 runs, not {len(epochs)}")
    if sum(epoch is None for epoch in epochs) > 1:
        return ConvergenceTest(False, "none", None, None, None, 1.0, unit)
    counted = sorted(math.inf if epoch is None else round(epoch, 3) for epoch in epochs)[1:-1]
    mean = float(np.mean(counted))  # adds up as the official checker does, so that equal means compare alike
    reference = reference_at(application, ruleset, batch, "pruned_rcps" if pruned else "full_rcps", log_cache)
    if reference.epochs is None or reference.least is None:
        return ConvergenceTest(False, reference.reference_kind, mean, None, None, 1.0, unit)
    factor = max(1.0, reference.epochs / mean) if mean > 0 else 1.0
    return ConvergenceTest(
        mean >= reference.least, reference.reference_kind, mean, reference.epochs, reference.least, factor, unit
    )


@dataclass(frozen=True)
class Reference:
    """The reference convergence point for a batch: its olympic mean, and the least mean that is accepted."""

    reference_kind: ReferenceKind
    epochs: float | None
    least: float | None


@cache
def reference_at(
    application: str, ruleset: str, batch: int, points: str, log_cache: LogCache | None = None
) -> Reference:
    """Return the reference of the official checker, which takes a second to import, or that in ``log_cache``."""
    reading = Reading(("reference", application, ruleset, str(batch), points), ())
    values = None if log_cache is None else log_cache.get([reading])[0]
    if isinstance(values, dict) and set(values) == {field.name for field in fields(Reference)}:
        return Reference(**values)
    kind, point = nearest(checker(application, ruleset), batch, points)
    epochs, least = (None, None) if point is None else (point["RCP Mean"], point["RCP Mean"] / point["Max Speedup"])
    reference = Reference(kind, None if epochs is None else float(epochs), None if least is None else float(least))
    if log_cache is not None:
        log_cache.put([(reading, reading.stamp(), asdict(reference))])
    return reference


def nearest(official: Any, batch: int, points: str) -> tuple[ReferenceKind, dict[str, Any] | None]:
    """Return the reference that a batch is compared with, chosen as the checker's ``check_directory`` does."""
    if (point := official._find_rcp(batch, points)) is not None:
        return "point", point
    below, above = official._find_top_min_rcp(batch, points), official._find_bottom_max_rcp(batch, points)
    if below is not None and above is not None:
        return "interpolated", official._create_interp_rcp(batch, below, above)[1]
    if below is not None:
        return "larger than all points", None
    return ("smaller than all points", official._find_min_rcp(points)) if above is not None else ("none", None)
