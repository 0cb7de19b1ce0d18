"""The official test of a folder's epochs against the reference convergence points, crashes and bypass included.

The test is ``rcp_checker.check_directory`` of mlperf_logging 4.1.68, which also writes and deletes ``scaling.json``;
here the folder stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpcbench.mlperf.convergence_check import check_convergence, checker, nearest
from hpcbench.mlperf.official_log import OfficialLog, words_of


@dataclass(frozen=True)
class ReferenceTest:
    """The result of the official test."""

    passed: bool
    words: str
    factor: float | None = None
    """What the official checker writes to ``scaling.json``; ``None`` if it leaves the file unchanged, 1 if it deletes
    it."""


def reference_test(logs: Sequence[OfficialLog], ruleset: str, bypass: bool = False) -> ReferenceTest:
    """Test the logs of a folder, in the order in which the official tools find them."""
    crash = next((log.convergence_crash for log in logs if log.convergence_crash is not None), None)
    if crash is not None:
        return ReferenceTest(False, f"crash: {crash}")
    try:
        return tested(logs, ruleset, bypass)
    except Exception as error:  # from values that are not numbers, or an application without points
        return ReferenceTest(False, f"crash: {words_of(error)}")


def tested(logs: Sequence[OfficialLog], ruleset: str, bypass: bool) -> ReferenceTest:
    """Like ``reference_test``, but raises where the official test does."""
    convergences = [log.convergence for log in logs if log.convergence is not None]
    batch: Any = -1
    benchmark: Any = None
    for convergence in convergences:
        batch = convergence.batch if batch == -1 else batch
        benchmark = benchmark if benchmark is not None else convergence.benchmark
        if convergence.batch != batch or convergence.benchmark != benchmark:
            raise KeyError("the logs differ in batch or benchmark")
    official = checker(benchmark, ruleset)
    if batch == -1:
        return ReferenceTest(False, "no global_batch_size")
    if sum(not convergence.converged for convergence in convergences) > 1:
        return ReferenceTest(False, "more than one run did not converge")
    if len(convergences) < 3:
        kind, point = nearest(official, batch, "pruned_rcps")
        bypassed = bypass and (kind != "none")
        return ReferenceTest(bypassed, f"fewer than 3 runs: {len(convergences)}", None if point is None else 1.0)
    test = check_convergence(
        benchmark,
        ruleset,
        batch,
        [convergence.epochs if convergence.converged else None for convergence in convergences],
        pruned=True,
    )
    if test.passed:
        return ReferenceTest(True, test.words, test.factor)
    factor = None if test.reference_epochs is None else 1.0
    if bypass and test.reference_kind != "none":
        return ReferenceTest(True, f"{test.words}, but bypassed", factor)
    return ReferenceTest(False, test.words, factor)
