"""What a scaling study and each of its plots show, in short sentences without their full stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpcbench.results import units
from hpcbench.results.figure_findings import phase_words
from hpcbench.study.scaling.content import Content
from hpcbench.study.scaling.point_results import PointResult, by_variant, efficiency, rate, speed_up
from hpcbench.study.scaling.table import nodes_words, parts
from hpcbench.study.scaling.time_to_solution import Solution, cheapest, fastest


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


def reach(values: Mapping[str, float], words: Mapping[str, str]) -> str:
    """The value of a single variant, or the least and the most of several with their names."""
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    if len(values) == 1 or words[low] == words[high]:
        return words[low]
    return f"{words[low]} ({low or 'as given'}) to {words[high]} ({high or 'as given'})"


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
        return f"{reach(rates, {name: units.significant(each) for name, each in rates.items()})} samples/s on {where}"
    gains = {name: speed_up(last, first) for name, (first, last) in scaled.items()}
    told = reach(gains, {name: units.significant(gain) for name, gain in gains.items()})
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
    told = reach(shares, {name: units.whole_percent(share) for name, share in shares.items()})
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
    told = reach(shares, {name: units.whole_percent(share) for name, share in shares.items()})
    return f"{phase_words(most)} takes {told} of a step on {where}"


def staging_finding(rows: Sequence[PointResult], simulated: bool = False) -> str:
    """The staging bandwidth at the largest size over that at the smallest, of rows that staged."""
    ends = at_the_ends([row for row in rows if row.values("staging_bytes_per_s")])
    scaled = {name: pair for name, pair in ends.items() if pair[0] is not pair[1]}
    if not scaled:
        return ""
    speeds = {name: last.middle("staging_bytes_per_s") or 0.0 for name, (_, last) in scaled.items()}
    told = reach(speeds, {name: units.significant(speed / 1e9) for name, speed in speeds.items()})
    first, last = next(iter(scaled.values()))
    text = f"Staging brings {told} GB/s to {node_words(last.nodes, simulated)}"
    before = first.middle("staging_bytes_per_s") or 0.0
    return text if len(scaled) > 1 else f"{text} and {units.significant(before / 1e9)} GB/s to {first.nodes:,}"


def solution_finding(solutions: Sequence[Solution], simulated: bool = False) -> str:
    """On how many nodes a training is fastest, and on how many cheapest."""
    quick, cheap = fastest(solutions), cheapest(solutions)
    where = node_words(quick.nodes, simulated)
    if quick is cheap:
        return f"A training is fastest and cheapest on {where}: {units.duration(quick.time_s)}"
    return (
        f"A training is fastest on {where} ({units.duration(quick.time_s)}) and cheapest on "
        f"{node_words(cheap.nodes, simulated)} ({units.significant(cheap.node_hours)} node-hours)"
    )


def variants_finding(rows: Sequence[PointResult], simulated: bool = False) -> str:
    """Whether the fastest and the slowest variant at the largest size are further apart than repeats."""
    here = sorted((last for _, last in at_the_ends(rows).values()), key=rate)
    if len(here) < 2:
        return ""
    slowest, best = here[0], here[-1]
    where = node_words(best.nodes, simulated)
    spreads = [spread for row in (slowest, best) if (spread := row.spread("samples_per_s")) is not None]
    if not spreads:
        return f"Too few repeats to tell the variants on {where} apart"
    apart = rate(best) / rate(slowest)
    if apart - 1 <= max(spreads):
        return f"The variants on {where} differ no more than repeats"
    names = best.variant or "the setting as given", slowest.variant or "the setting as given"
    return f"On {where} {names[0]} is {apart:,.2f} times as fast as {names[1]}"
