"""What a scaling study and each of its plots show, in short sentences without their full stop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hpcbench.results import units
from hpcbench.results.figure_findings import phase_words
from hpcbench.study.scaling.content import Content
from hpcbench.study.scaling.point_results import (
    LEVEL,
    PointResult,
    by_variant,
    compare_variants,
    efficiency,
    full_rates,
    rate,
    speed_up,
)
from hpcbench.study.scaling.rate_ratio import ratio_p
from hpcbench.study.scaling.table import nodes_words, part_shares, parts
from hpcbench.study.scaling.time_to_solution import Solution, cheapest, fastest

MOST_NAMED = 3
"""Most trainings that are named as not told apart from the fastest."""


def headline(content: Content) -> str:
    """What leads the page: how throughput grows with the nodes, or for a single size the throughput itself."""
    return throughput_finding(content.rows, content.simulated)


def node_words(count: int, simulated: bool) -> str:
    """``1 node``, ``4 simulated nodes``."""
    return nodes_words(count) if not simulated else units.counted(count, "simulated node")


def at_the_ends(rows: Sequence[PointResult]) -> dict[str, tuple[PointResult, PointResult]]:
    """The smallest and the largest size of each variant that ran at the largest size of all; it has figures."""
    ends = {name: (members[0], members[-1]) for name, members in by_variant(rows).items()}
    largest = max((last.nodes for _, last in ends.values()), default=0)
    return {name: pair for name, pair in ends.items() if pair[1].nodes == largest}


def reach(
    values: Mapping[str, float], words: Mapping[str, str], repeats: Mapping[str, Sequence[Sequence[float]]]
) -> str:
    """The value of a single variant, or the least and the most of several, named if the repeats tell them apart.

    ``repeats`` has those of every value, and of what it was divided by. The pair is chosen by its outcome, so that its
    p-value is Bonferroni's for all pairs.
    """
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    if len(values) == 1 or words[low] == words[high]:
        return words[low]
    p = ratio_p([*repeats[high][:1], *repeats[low][1:]], [*repeats[low][:1], *repeats[high][1:]])
    if p is None or p * math.comb(len(values), 2) > LEVEL:
        return f"{words[low]} to {words[high]}"
    return f"{words[low]} ({low or 'as given'}) to {words[high]} ({high or 'as given'})"


def gain_repeats(ends: Mapping[str, tuple[PointResult, PointResult]]) -> dict[str, list[list[float]]]:
    """The throughput of the largest and of the smallest size of each variant, of every repeat."""
    return {name: [last.values("samples_per_s"), full_rates(first)] for name, (first, last) in ends.items()}


def throughput_finding(rows: Sequence[PointResult], simulated: bool = False) -> str:
    """How many times the throughput of the smallest size the largest has, and with what efficiency."""
    ends = at_the_ends(rows)
    if not ends:
        return ""
    last = next(iter(ends.values()))[1]
    where = node_words(last.nodes, simulated)
    scaled = {name: pair for name, pair in ends.items() if pair[0] is not pair[1]}
    if not scaled:
        rates = {name: rate(last) for name, (_, last) in ends.items()}
        measured = {name: [last.values("samples_per_s")] for name, (_, last) in ends.items()}
        told = reach(rates, {name: units.significant(each) for name, each in rates.items()}, measured)
        return f"{told} samples/s on {where}"
    gains = {name: speed_up(last, first) for name, (first, last) in scaled.items()}
    told = reach(gains, {name: units.significant(gain) for name, gain in gains.items()}, gain_repeats(scaled))
    firsts = {first.nodes for first, _ in scaled.values()}
    than = f"{firsts.pop():,}" if len(firsts) == 1 else "the smallest size"
    shares = {name: efficiency(last, first) for name, (first, last) in scaled.items()}
    share = f" (efficiency {units.whole_percent(next(iter(shares.values())))})" if len(shares) == 1 else ""
    return f"{where} train {told} times as fast as {than}{share}"


def efficiency_finding(rows: Sequence[PointResult], simulated: bool = False) -> str:
    """The efficiency at the largest size."""
    scaled = {name: pair for name, pair in at_the_ends(rows).items() if pair[0] is not pair[1]}
    if not scaled:
        return ""
    shares = {name: efficiency(last, first) for name, (first, last) in scaled.items()}
    told = reach(shares, {name: units.whole_percent(share) for name, share in shares.items()}, gain_repeats(scaled))
    return f"The efficiency on {node_words(next(iter(scaled.values()))[1].nodes, simulated)} is {told}"


def phases_finding(rows: Sequence[PointResult], simulated: bool = False) -> str:
    """The longest part of a step at the largest size, and its share."""
    steps = {name: parts(last) for name, (_, last) in at_the_ends(rows).items()}
    steps = {name: step for name, step in steps.items() if sum(step.values()) > 0}
    if not steps:
        return ""
    longest = {name: max(step, key=step.__getitem__) for name, step in steps.items()}
    most = max(dict.fromkeys(longest.values()), key=list(longest.values()).count)
    of_them = [name for name in steps if longest[name] == most]
    where = node_words(next(iter(at_the_ends(rows).values()))[1].nodes, simulated)
    if len(of_them) < len(steps):
        return (
            f"{phase_words(most)} is the longest part of a step on {where} in {len(of_them)} of {len(steps)} variants"
        )
    shares = {name: step[most] / sum(step.values()) for name, step in steps.items()}
    measured = {name: [part_shares(last, most)] for name, (_, last) in at_the_ends(rows).items()}
    told = reach(shares, {name: units.whole_percent(share) for name, share in shares.items()}, measured)
    return f"{phase_words(most)} takes {told} of a step on {where}"


def staging_finding(rows: Sequence[PointResult], simulated: bool = False) -> str:
    """The staging bandwidth at the largest size over that at the smallest, of rows that staged."""
    ends = at_the_ends([row for row in rows if row.values("staging_bytes_per_s")])
    scaled = {name: pair for name, pair in ends.items() if pair[0] is not pair[1]}
    if not scaled:
        return ""
    speeds = {name: last.middle("staging_bytes_per_s") or 0.0 for name, (_, last) in scaled.items()}
    measured = {name: [last.values("staging_bytes_per_s")] for name, (_, last) in scaled.items()}
    told = reach(speeds, {name: units.significant(speed / 1e9) for name, speed in speeds.items()}, measured)
    first, last = next(iter(scaled.values()))
    text = f"Staging brings {told} GB/s to {node_words(last.nodes, simulated)}"
    before = first.middle("staging_bytes_per_s") or 0.0
    return text if len(scaled) > 1 else f"{text} and {units.significant(before / 1e9)} GB/s to {first.nodes:,}"


def solution_finding(solutions: Mapping[str, Sequence[Solution]], simulated: bool = False) -> str:
    """On how many nodes a training is fastest, and on how many cheapest, with the variant if there are several."""
    everything = [one for members in solutions.values() for one in members]
    quick, cheap = fastest(everything), cheapest(everything)
    where, doubt = solution_place(quick, solutions, simulated), alike_words(quick, solutions, simulated)
    if quick is cheap:
        return f"A training is fastest and cheapest on {where}: {units.duration(quick.time_s)}{doubt}"
    return (
        f"A training is fastest on {where} ({units.duration(quick.time_s)}) and cheapest on "
        f"{solution_place(cheap, solutions, simulated)} ({units.significant(cheap.node_hours)} node-hours){doubt}"
    )


def solution_place(found: Solution, solutions: Mapping[str, Sequence[Solution]], simulated: bool = False) -> str:
    """The nodes of one of the ``solutions``, and its variant if there are several: ``4 nodes with overlap off``."""
    shown = {variant: members for variant, members in solutions.items() if members}
    variant = next(name for name, members in shown.items() if any(one is found for one in members))
    named = f" with {variant or 'the setting as given'}" if len(shown) > 1 else ""
    return f"{node_words(found.nodes, simulated)}{named}"


def alike_words(quick: Solution, solutions: Mapping[str, Sequence[Solution]], simulated: bool = False) -> str:
    """Which other solutions have times whose interval overlaps that of the fastest; empty if none has."""
    alike = [
        solution_place(one, solutions, simulated)
        for members in solutions.values()
        for one in members
        if one is not quick and one.time_interval[0] <= quick.time_interval[1]
    ]
    if not alike:
        return ""
    named = ", ".join(alike[:MOST_NAMED]) + (f" and {len(alike) - MOST_NAMED} more" if len(alike) > MOST_NAMED else "")
    return f"; the shortest time is not told apart from that on {named}: their 95 % intervals overlap"


def variants_finding(rows: Sequence[PointResult], simulated: bool = False) -> str:
    """Whether the repeats tell the fastest and the slowest variant at the largest size apart."""
    found = compare_variants([last for _, last in at_the_ends(rows).values()])
    if found is None:
        return ""
    where = node_words(found.best.nodes, simulated)
    if found.p is None:
        return f"Too few repeats to tell the variants on {where} apart"
    if not found.is_clear:
        return f"No difference between the variants on {where} is seen"
    names = found.best.variant or "the setting as given", found.slowest.variant or "the setting as given"
    return f"On {where} {names[0]} is {found.factor:,.2f} times as fast as {names[1]}"
