"""Whether commitments are met: committed values against the valid runs of their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.campaign.figures import SizeResult
from hpcbench.campaign.rules import UNITS, Campaign, Commitment
from hpcbench.results.units import counted, significant

Verdict = Literal["met", "missed", "open"]


@dataclass(frozen=True)
class Accepted:
    """A commitment and its verdict."""

    commitment: Commitment
    verdict: Verdict
    words: str


def judge(campaign: Campaign, results: Sequence[SizeResult]) -> list[Accepted]:
    """Judge every commitment of a campaign; ``open`` if too few runs are valid to tell.

    It is ``missed``, however fast the others are, if so many runs did not reach the target that the figure is infinite,
    and where enough runs fail the test against the reference convergence points, so that they have no figure.
    """
    return [judge_one(campaign, promise, results) for promise in campaign.acceptance]


def judge_one(campaign: Campaign, promise: Commitment, results: Sequence[SizeResult]) -> Accepted:
    """Judge one commitment."""
    scenario = next(scenario for scenario in campaign.scenarios if scenario.name == promise.scenario)
    unit = UNITS[scenario.metric.what]
    limit = promise.value * (1 + promise.tolerance)
    where = f"{promise.scenario}, {promise.category}, {counted(promise.nodes, 'node')}"
    asked = f"{significant(promise.value, 4)} {unit} + {100 * promise.tolerance:g} %"
    result = next((result for result in results if (result.scenario.name, result.category.name, result.nodes) ==
                   (promise.scenario, promise.category, promise.nodes)), None)  # fmt: skip
    if result is not None and result.unreached and result.valid + result.lost >= promise.repeats:
        return Accepted(promise, "missed", f"{where}: {result.lost_words}, committed {asked}")
    valid = result.valid if result is not None else 0
    if result is not None and result.valid >= promise.repeats and result.convergence and not result.convergence.passed:
        return Accepted(promise, "missed", f"{where}: convergence: {result.convergence.words}; committed {asked}")
    if result is None or result.value is None or result.unreached or valid < promise.repeats:
        runs = f"{valid} of {counted(promise.repeats, 'valid run')}"
        return Accepted(promise, "open", f"{where}: {runs}, committed {asked}")
    part = result.value / promise.value - 1
    words = f"{where}: {significant(result.value, 4)} {unit}, committed {asked} ({100 * part:+.1f} %)"
    return Accepted(promise, "met" if result.value <= limit else "missed", words)
