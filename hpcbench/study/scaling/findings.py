"""What a scaling study shows, and what its reader must know, in sentences that follow from its numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from hpcbench.phase_names import STEP_PARTS
from hpcbench.results import units
from hpcbench.results.plots import words
from hpcbench.study.scaling import table
from hpcbench.study.scaling.content import Content
from hpcbench.study.scaling.figure_findings import alike_words, solution_place
from hpcbench.study.scaling.instance_table import counted
from hpcbench.study.scaling.point_results import (
    LEVEL,
    Mode,
    PointResult,
    by_variant,
    compare_variants,
    efficiency,
    efficiency_interval,
    rate,
    speed_up,
)
from hpcbench.study.scaling.rate_ratio import difference_p, rate_ratio
from hpcbench.study.scaling.scaling_laws import SpeedFit
from hpcbench.study.scaling.time_to_solution import Solution, cheapest, fastest
from hpcbench.study.series_comparison import p_words

MEANING: dict[Mode, str] = {
    "strong": "Strong scaling: the global batch stays, so that a rank's share of it shrinks as nodes are added. An "
    "efficiency of 100 % means that a step takes as much less time as there are more nodes.",
    "weak": "Weak scaling: a rank's batch stays, so that the global batch grows with the nodes. An efficiency of 100 % "
    "means that a step takes as long as on the smallest size; that a larger batch may need more epochs is not in it.",
    "throughput": "Throughput: independent trainings run at the same time, each on as many nodes. An efficiency of "
    "100 % means that they do not slow one another down.",
}
LEAST_GROWTH = 0.01
"""Shares of a step that grow by less are said to stay."""
ALL = 3
"""Up to this many variants have a sentence each; of more, only the fastest has one."""


def fastest_variant(rows: Sequence[PointResult]) -> str:
    """The variant with the highest throughput at the largest size that was run."""
    rows_by_variant = by_variant(rows)
    return max(rows_by_variant, key=lambda name: (rows_by_variant[name][-1].nodes, rate(rows_by_variant[name][-1])))


def findings(content: Content) -> list[str]:
    """What the study shows, in sentences that follow from its numbers."""
    rows_by_variant = by_variant(content.rows)
    best = fastest_variant(content.rows)
    said = _compare_variants(content.rows)
    said += [
        _growth(members) for name, members in rows_by_variant.items() if len(rows_by_variant) <= ALL or name == best
    ]
    said += _instances(rows_by_variant[best][-1], content.steps is None) if content.mode == "throughput" else []
    said += _staging(rows_by_variant[best])
    said += _training(content.solutions)
    said.append(_scatter(content.rows))
    return said


def _growth(rows: Sequence[PointResult]) -> str:
    """How throughput grows from the smallest size to the largest, and which part takes more, or most, of a step."""
    first, last = rows[0], rows[-1]
    name = f"{last.variant}: " if last.variant else ""
    if first is last:
        after = shares(last)
        most = max(after, key=lambda phase: after[phase], default="")
        part = f"; {words(most)} takes {units.whole_percent(after[most])} of a step" if most else ""
        return f"{name}{units.significant(rate(last))} samples/s on {table.nodes_words(last.nodes)}{part}."
    gain = speed_up(last, first)
    grows = f"grows {units.significant(gain)} times" if gain >= 1 else f"falls to {units.whole_percent(gain)}"
    text = f"{name}{'from' if name else 'From'} {first.nodes:,} to {table.nodes_words(last.nodes)} throughput {grows} "
    interval = efficiency_interval(last, first)
    sure = "" if interval is None else f", 95 % interval {table.share_interval(interval)} %"
    text += f"(efficiency {units.whole_percent(efficiency(last, first))}{sure})"
    return f"{text}{_parts(first, last)}."


def _parts(first: PointResult, last: PointResult) -> str:
    """The part of a step whose share grows most of those whose repeats differ, or else the largest part."""
    before, after = shares(first), shares(last)
    growth = {phase: after[phase] - before[phase] for phase in STEP_PARTS if phase in before and phase in after}
    if not growth:
        return ""
    if max(growth.values()) < LEAST_GROWTH:
        return "; the parts of a step keep their shares to 1 %"
    chances = {phase: difference_p(table.part_shares(last, phase), table.part_shares(first, phase)) for phase in growth}
    clear = [phase for phase, p in chances.items() if growth[phase] > 0 and p is not None and p * len(growth) <= LEVEL]
    where = table.nodes_words(last.nodes)
    if clear:
        most = max(clear, key=growth.__getitem__)
        shown = units.whole_percent(after[most]), units.whole_percent(before[most])
        return f"; {words(most)} takes {shown[0]} of a step at {where}, {shown[1]} at {first.nodes:,}"
    most = max(after, key=after.__getitem__)
    unclear = "" if None in chances.values() else "; the repeats do not show which part's share grows"
    return f"; {words(most)} takes {units.whole_percent(after[most])} of a step at {where}{unclear}"


def shares(row: PointResult) -> dict[str, float]:
    """The share of a step that each of its parts takes."""
    step_s = table.parts(row)
    total = sum(step_s.values())
    return {phase: seconds / total for phase, seconds in step_s.items()} if total else {}


def _compare_variants(rows: Sequence[PointResult]) -> list[str]:
    """Whether chance is likely to be all that tells the variants of the largest size apart."""
    largest = max(row.nodes for row in rows if row.runs)
    found = compare_variants([row for row in rows if row.nodes == largest])
    if found is None:
        return []
    text = (
        f"On {table.nodes_words(largest)} {found.best.variant or 'the setting as given'} is fastest, "
        f"{found.factor:,.2f} times {found.slowest.variant or 'the setting as given'}, the slowest"
    )
    if found.p is None:
        return [f"{text}; single repeats cannot tell whether this is chance."]
    chance = f"(p {p_words(found.p)})."
    return [f"{text} {chance}" if found.is_clear else f"{text}; the repeats do not tell them apart {chance}"]


def _staging(rows: Sequence[PointResult]) -> list[str]:
    staged = [(row, value) for row in rows if (value := row.middle("staging_bytes_per_s"))]
    if len(staged) < 2:
        return []
    (first, before), (last, after) = staged[0], staged[-1]
    text = (
        f"Staging brings {units.significant(before / 1e9)} GB/s to {table.nodes_words(first.nodes)} and "
        f"{units.significant(after / 1e9)} GB/s to {last.nodes:,}"
    )
    ideal = [value * last.nodes / first.nodes for value in first.values("staging_bytes_per_s")]
    found = rate_ratio(last.values("staging_bytes_per_s"), ideal)
    if found is None:
        return [f"{text}."]
    share = units.whole_percent(after / before * first.nodes / last.nodes)
    return [f"{text} (efficiency {share}, 95 % interval {table.share_interval(found.interval)} %)."]


def _instances(row: PointResult, timed: bool) -> list[str]:
    """How many models the largest size trains in what time, how long its instances ran together, and how many count."""
    if row.instances == 1:
        return []
    share, seconds = row.middle("together") or 0.0, row.middle("time_s" if timed else "span_s")
    text = f"On {table.nodes_words(row.nodes)} {counted(row, 'instances')} instances ran at the same time"
    text += f", all of them for {units.whole_percent(share)} of their training"
    if timed and seconds:
        speed = units.significant(row.middle("models_per_minute"))
        text += f"; {counted(row, 'models')} reached the target in {units.duration(seconds)}, {speed} models a minute"
    return [f"{text}."]


def _training(solutions: Mapping[str, Sequence[Solution]]) -> list[str]:
    everything = [one for members in solutions.values() for one in members]
    if not everything:
        return []
    quick, cheap = fastest(everything), cheapest(everything)
    best = f"{solution_place(quick, solutions)}: {units.duration(quick.time_s)}, {units.significant(quick.node_hours)}"
    doubt = alike_words(quick, solutions)
    if quick is cheap:
        return [f"A training to the target is fastest and cheapest on {best} node-hours{doubt}."]
    return [
        f"A training to the target is fastest on {best} node-hours; cheapest on {solution_place(cheap, solutions)}: "
        f"{units.duration(cheap.time_s)}, {units.significant(cheap.node_hours)} node-hours{doubt}."
    ]


def _scatter(rows: Sequence[PointResult]) -> str:
    """How far apart repeats are, against which differences between sizes must be judged."""
    known = [spread for row in rows if (spread := row.spread("samples_per_s")) is not None]
    once = [row for row in rows if len(row.runs) == 1]
    if not known:
        return "Every size has one repeat: how far chance moves these figures is not known."
    text = f"Repeats of a size differ by up to {units.percent(max(known))} of their median throughput"
    return text + (f"; {len(once)} of {len(known) + len(once)} points have one repeat only." if once else ".")


def fit_words(variant: str, fit: SpeedFit) -> str:
    """A fit in words, with its interval and its warning."""
    name, note = f"{variant}: " if variant else "", f" Note: {fit.note.rstrip('.')}." if fit.note else ""
    if not math.isfinite(fit.fraction):
        return f"{name}{fit.law}'s law is not fitted.{note}"
    low, high = (_fraction(bound) for bound in fit.interval)
    of = "the time on the smallest size" if fit.law == "Amdahl" else "the time on every size"
    text = f"{name}{fit.law}'s law: serial fraction {_fraction(fit.fraction)} of {of} (95 % interval {low} to {high})"
    if math.isfinite(fit.limit):
        text += f"; speed-up over the smallest size at most {units.interval(fit.limit, fit.limit_interval)}"
    return f"{text}.{note}"


def notes(content: Content) -> list[str]:
    """What a reader must know in addition to the figures."""
    sentences = [f"{MEANING[content.mode]} Speed-up and efficiency are relative to the smallest size that has figures."]
    length = "Each run trained to its target" if content.steps is None else f"Each run took {content.steps:,} steps"
    if content.warmup_steps:
        sentences.append(
            f"{length}. Its warm-up, {units.counted(content.warmup_steps, 'step')} at its start, is in no figure of "
            "throughput, of a step or of a sample."
        )
    else:
        sentences.append(f"{length}. No warm-up was left out.")
    sentences.append(
        "Figures are medians over repeats; spread: largest minus smallest over the median. Shares of a step are those "
        "of the mean over ranks. The slowest rank may be another one in each column."
    )
    if any(efficiency_interval(row, rows[0]) for rows in by_variant(content.rows).values() for row in rows):
        sentences.append(
            "95 %: interval of the efficiency in percent, from the scatter of the repeats (Welch's, of logarithms)."
        )
    sentences += slowest_ranks(content.rows)
    if any(run.cpu_used for row in content.rows for run in row.runs):
        sentences.append("CPU use: cores kept busy over compute threads, the mean over ranks; lowest: of any rank.")
    if all(run.peak_flops is None for row in content.rows for run in row.runs):
        sentences.append("The peak FLOP/s of the ranks was not measured in these runs, so that its use is not known.")
    else:
        sentences.append(
            "FLOP/s utilization: model FLOP/s over the peak that matrix products reached on the same ranks."
        )
    if any(run.device_busy for row in content.rows for run in row.runs):
        sentences.append(
            "Accelerator busy: the part of the time on the clock in which its driver saw it work, the median over "
            "ranks; lowest: of any rank."
        )
    if content.simulated:
        sentences.append(
            "Simulated nodes are processes of one machine: they share its memory, and no network is in this."
        )
    if any(not math.isnan(one.time_interval[0]) for members in content.solutions.values() for one in members):
        sentences.append(
            "Node-hours (95 %): interval from that of the epochs and the scatter of repeats; none for a single repeat."
        )
    if any(solution.extrapolated for members in content.solutions.values() for solution in members):
        sentences.append(
            "* The batch lies outside of those at which runs of the convergence study reached the target: its epochs "
            "are extrapolated."
        )
    return [*sentences, *content.notes]


def slowest_ranks(rows: Sequence[PointResult]) -> list[str]:
    """Which rank had the longest step, apart from waiting, in most repeats of each size with several ranks."""
    phrases = []
    for row in rows:
        named = Counter(run.slowest_rank for run in row.runs if run.slowest_rank)
        for name, count in named.most_common(1):
            if 2 * count <= len(row.runs):
                continue
            part = "" if count == len(row.runs) else f", in {count} of {units.counted(len(row.runs), 'repeat')}"
            variant = f" with {row.variant}" if row.variant else ""
            phrases.append(f"{units.counted(row.nodes, 'node')}{variant}: {name}{part}")
    return [f"The longest steps, apart from waiting, were those of: {'; '.join(phrases)}."] if phrases else []


def _fraction(value: float) -> str:
    """A serial fraction to two digits: 3.1 %."""
    return (
        "unbounded" if math.isinf(value) else "0 %" if abs(value) < 1e-6 else f"{units.significant(100 * value, 2)} %"
    )
