"""What each plot of an analysis shows, in a short sentence without its full stop; empty where nothing can be said."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import median

from hpcbench.analysis.compute_rows import ComputeRow
from hpcbench.analysis.convergence_rows import ConvergenceRow
from hpcbench.analysis.decomposition import Decomposition
from hpcbench.analysis.machine_names import Labels
from hpcbench.analysis.staging_rows import StagingRow
from hpcbench.analysis.tier_rows import TierRow
from hpcbench.analysis.variation_rows import VariationRow
from hpcbench.application_names import application_name
from hpcbench.results import units

LARGE = 0.1
"""Staging above this share of the time is counted."""


def decomposition_finding(pairs: Sequence[Decomposition]) -> str:
    """Which factor is the largest for most entries."""
    largest = [pair.largest.label for pair in pairs]
    most = max(dict.fromkeys(largest), key=largest.count, default="")
    if len(pairs) < 2:
        return f"The largest factor is {most}" if most else ""
    count = units.counted(len(pairs), "entry", "entries")
    return f"{most[:1].upper() + most[1:]} is the largest factor for {largest.count(most)} of {count}"


def pair_finding(pair: Decomposition, labels: Labels) -> str:
    """How much longer the slower entry takes, and by which factor most."""
    slow, fast, sign = (pair.a, pair.b, 1.0) if pair.total >= 0 else (pair.b, pair.a, -1.0)
    term = pair.largest
    factor = units.significant(exp(sign * pair.terms[term.name]))
    return (
        f"{labels[slow.identity]} takes {exp(abs(pair.total)):.2f} times as long as {labels[fast.identity]}; the "
        f"largest factor is {term.label} ×{factor}"
    )


def staging_finding(rows: Sequence[StagingRow]) -> str:
    """How much of the time staging takes at most, and in how many entries more than a tenth."""
    shares = [row.share for row in rows if row.share]
    if not shares:
        return ""
    most, large = units.whole_percent(max(shares)), sum(share > LARGE for share in shares)
    if not large:
        return f"Staging takes at most {most} of the time"
    return f"Staging takes more than a tenth of the time in {large} of {len(rows)} entries, at most {most}"


def convergence_finding(rows: Sequence[ConvergenceRow], far: float) -> str:
    """How many entries need ``far`` times the epochs of their reference point or more."""
    known = [row.over_reference for row in rows if row.over_reference is not None]
    if not known:
        return ""
    count = sum(over >= far for over in known)
    entries = units.counted(len(known), "entry", "entries")
    if not count:
        return f"No entry needs {far:g} times the epochs of its reference point, of {entries} with one"
    need = "needs" if count == 1 else "need"
    return f"{count} of {entries} with a reference point {need} {far:g} times its epochs or more"


def variation_finding(rows: Sequence[VariationRow]) -> str:
    """How much of the variance of the time epochs explain."""
    shares = [row.explained for row in rows if row.explained is not None]
    if not shares:
        return ""
    return f"Epochs explain {units.whole_percent(median(shares))} of the variance of the time in the median entry"


def compute_finding(rows: Sequence[ComputeRow]) -> str:
    """By which factor rates of entries of one application differ, for that with the largest."""
    ratios = {}
    for application in dict.fromkeys(row.application for row in rows):
        rates = [row.rate for row in rows if row.application == application and row.rate]
        if len(rates) > 1:
            ratios[application] = max(rates) / min(rates)
    if not ratios:
        return ""
    widest = max(ratios, key=ratios.__getitem__)
    factor = units.significant(ratios[widest])
    return f"Rates per accelerator of {application_name(widest)} entries differ by a factor of up to {factor}"


def tiers_finding(rows: Sequence[TierRow]) -> str:
    """On how many machines node storage holds a set on fewer nodes than node memory does."""
    machines = {row.machine for row in rows}
    helped = {row.machine for row in rows if row.storage_nodes is not None
              and (row.memory_nodes is None or row.storage_nodes < row.memory_nodes)}  # fmt: skip
    return f"On {len(helped)} of {len(machines)} machines node storage holds a set on fewer nodes than memory does"
