"""The page of a scaling study, and the files beside it: results.csv, table.txt, the plots, and the proposal table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from hpcbench import __version__
from hpcbench.phase_names import STEP_PARTS
from hpcbench.results import style, units
from hpcbench.results.plots import Figure, words
from hpcbench.results.report import Drawn, write_page
from hpcbench.results.run_folder import write_atomic
from hpcbench.study.scaling import phase_plots, plots, table
from hpcbench.study.scaling.proposal import Line
from hpcbench.study.scaling.proposal_forms import as_csv, as_latex, as_text
from hpcbench.study.scaling.rows import Mode, Row, by_variant, efficiency, rate, speed_up
from hpcbench.study.scaling.scaling_laws import SpeedFit
from hpcbench.study.scaling.solution import Solution, cheapest, fastest

PAGE = "scaling.html"
TITLES: dict[Mode, str] = {
    "strong": "Strong scaling", "weak": "Weak scaling", "throughput": "Throughput of independent trainings",
}  # fmt: skip
MEANING: dict[Mode, str] = {
    "strong": "Strong scaling: the global batch stays, so that a rank's share of it shrinks as nodes are added. An "
    "efficiency of 100 % means that a step takes as much less time as there are more nodes.",
    "weak": "Weak scaling: a rank's batch stays, so that the global batch grows with the nodes. An efficiency of 100 % "
    "means that a step takes as long as on the smallest size; that a larger batch may need more epochs is not in it.",
    "throughput": "Throughput: independent trainings run at the same time, each on as many nodes. An efficiency of "
    "100 % means that they do not slow one another down.",
}
ALL = 3
"""Variants that have a sentence each; of more, the fastest has one."""


@dataclass(frozen=True)
class Content:
    """Everything that the page is made of."""

    title: str
    """What the application trains, in words."""
    mode: Mode
    application: str
    preset: str
    site: str
    simulated: bool
    """Whether nodes are groups of processes on one machine."""
    rows: Sequence[Row]
    """Some of them with runs."""
    fits: Mapping[str, SpeedFit]
    """By variant, as are the solutions."""
    solutions: Mapping[str, Sequence[Solution]]
    proposal: Sequence[Line] | None
    commands: Sequence[str]
    machine: str
    """What the runs ran on, in a line."""
    notes: Sequence[str]
    """What else a reader must know."""
    steps: int | None
    """Optimizer steps of a run, warm-up included; unset where runs train to the target."""
    warmup_steps: int


def write_scaling(content: Content, folder: Path) -> str:
    """Write everything that a reader gets into ``folder``; returns the text of ``table.txt``."""
    drawn = figures(content)
    folder.mkdir(parents=True, exist_ok=True)
    for figure in drawn:
        style.save(figure.figure, folder / f"{figure.name}.png")
        style.save(figure.figure, folder / f"{figure.name}.svg")
    write_atomic(folder / "results.csv", table.results_frame(content.rows).to_csv(index=False))
    text = text_of(content)
    write_atomic(folder / "table.txt", text + "\n")
    if content.proposal:
        for suffix, form in (("txt", as_text), ("tex", as_latex), ("csv", as_csv)):
            write_atomic(folder / f"proposal.{suffix}", form(content.proposal))
    write_page(folder / PAGE, page_of(content, drawn))
    return text


def figures(content: Content) -> list[Figure]:
    """Every plot that the runs allow; lines and bars of so many variants as can be told apart."""
    rows, simulated = plots.leading(content.rows), content.simulated
    shown, every = by_variant(rows), by_variant(content.rows)
    trainings = {name: found for name, found in content.solutions.items() if name in shown}
    found = [
        plots.throughput(rows, content.mode, content.fits, simulated),
        plots.efficiencies(rows, simulated),
        phase_plots.phases(rows, simulated),
        phase_plots.staging(rows, simulated),
        phase_plots.solution(trainings, simulated),
    ]
    if len(shown) < len(every):
        only = f" Only the {len(shown)} fastest of {len(every)} variants are drawn; the tables have all."
        found = [None if each is None else replace(each, caption=each.caption + only) for each in found]
    found.append(plots.variants(content.rows, simulated))
    return [figure for figure in found if figure is not None]


def text_of(content: Content) -> str:
    """Findings, results, parts, fits, cost and notes as plain text within 100 columns."""
    head = f"{heading(content)}: {content.application} {content.preset}, {content.site}"
    solutions = [sheet.as_text() for sheet in table.solution_sheets(content.solutions)]
    blocks = [
        "\n".join(table.wrapped([head])),
        "\n".join(table.wrapped(findings(content))),
        table.results_table(content.rows, content.mode),
        table.phases_table(content.rows),
        "\n".join(table.wrapped([fit_words(name, fit) for name, fit in content.fits.items()])),
        *solutions,
        "\n".join(table.wrapped([*notes(content), f"Machine: {content.machine}"])),
    ]
    return "\n\n".join(block for block in blocks if block)


def page_of(content: Content, drawn: Sequence[Figure]) -> str:
    """The page as HTML text."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("hpcbench.study"), PackageLoader("hpcbench.results")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(PAGE).render(
        version=__version__,
        page_title=f"{content.application} {content.preset}: {heading(content).lower()}",
        content=content,
        heading=heading(content),
        findings=findings(content),
        tiles=tiles(content),
        figures={figure.name: Drawn.of(figure) for figure in drawn},
        results=table.result_sheets(content.rows, content.mode),
        steps=[*table.step_sheets(content.rows), *table.rank_sheets(content.rows)],
        use=table.use_sheets(content.rows),
        beside=table.beside_sheets(content.rows),
        solutions=table.solution_sheets(content.solutions),
        fits=[fit_words(name, fit) for name, fit in content.fits.items()],
        repeats=table.repeat_lines(content.rows),
        devices=table.device_lines(content.rows),
        energy=table.energy_lines(content.rows),
        slow=table.slow_lines(content.rows),
        notes=notes(content),
        proposal=as_text(content.proposal) if content.proposal else "",
        failed=sum(len(row.failed) for row in content.rows),
        to_do=sum(row.left for row in content.rows),
    )


def heading(content: Content) -> str:
    """``Strong scaling from 1 to 8 nodes``."""
    found = plots.sizes(content.rows)
    where = f"from {found[0]:,} to {found[-1]:,}" if len(found) > 1 else f"on {found[0]:,}"
    kind = "simulated node" if content.simulated else "node"
    return f"{TITLES[content.mode]} {where} {kind}{'' if found == [1] else 's'}"


def tiles(content: Content) -> list[dict[str, str]]:
    """The numbers at the top."""
    best = by_variant(content.rows)[fastest_variant(content.rows)]
    first, last = best[0], best[-1]
    done, failed, left = (sum(counts) for counts in zip(
        *((len(row.runs), len(row.failed), row.left) for row in content.rows), strict=True))  # fmt: skip
    cost = sum(run.wall_s * row.nodes for row in content.rows for run in row.runs) / 3600
    sample = table.middle(last, "joules_per_sample")
    on = f"on {table.nodes_words(last.nodes)}" + (f", {last.variant}" if last.variant else "")
    return [
        {"label": "Throughput", "value": f"{units.significant(rate(last))}/s", "note": f"samples {on}"},
        {"label": "Efficiency", "value": units.MISSING if first is last else _percent(efficiency(last, first)),
         "note": "needs two sizes" if first is last
         else f"a speed-up of {speed_up(last, first):,.2f} over {table.nodes_words(first.nodes)}"},
        {"label": "Repeats done", "value": f"{done} of {done + failed + left}",
         "note": f"{failed} failed, {left} left to run" + (f"; {units.significant(cost)} node-hours" if cost else "")},
        {"label": "Energy", "value": f"{units.significant(sample)} J" if sample is not None else units.MISSING,
         "note": f"per sample {on}" if sample is not None else "not measured"},
    ]  # fmt: skip


def fastest_variant(rows: Sequence[Row]) -> str:
    """The variant of the highest throughput at the largest size that was run."""
    found = by_variant(rows)
    return max(found, key=lambda name: (found[name][-1].nodes, rate(found[name][-1])))


def findings(content: Content) -> list[str]:
    """What the study shows, in sentences that its numbers decide."""
    found = by_variant(content.rows)
    best = fastest_variant(content.rows)
    said = _compare_variants(content.rows)
    said += [_growth(members) for name, members in found.items() if len(found) <= ALL or name == best]
    said += _staging(found[best])
    said += _training([each for members in content.solutions.values() for each in members])
    said.append(_scatter(content.rows))
    return said


def _growth(rows: Sequence[Row]) -> str:
    """How throughput grows from the smallest size to the largest, and which part of a step grows most in share."""
    first, last = rows[0], rows[-1]
    name = f"{last.variant}: " if last.variant else ""
    before, after = shares(first), shares(last)
    if first is last:
        most = max(after, key=lambda phase: after[phase], default="")
        part = f"; {words(most)} takes {_percent(after[most])} of a step" if most else ""
        return f"{name}{units.significant(rate(last))} samples/s on {table.nodes_words(last.nodes)}{part}."
    gain = speed_up(last, first)
    grows = f"grows {units.significant(gain)} times" if gain >= 1 else f"falls to {_percent(gain)}"
    text = f"{name}{'from' if name else 'From'} {first.nodes:,} to {table.nodes_words(last.nodes)} throughput {grows} "
    text += f"(efficiency {_percent(efficiency(last, first))})"
    both = [phase for phase in STEP_PARTS if phase in before and phase in after]
    most = max(both, key=lambda phase: after[phase] - before[phase], default="")
    if not most:
        return f"{text}."
    if after[most] - before[most] < 0.01:
        return f"{text}; the parts of a step keep their shares to 1 %."
    return (
        f"{text}; {words(most)} takes {_percent(after[most])} of a step at {table.nodes_words(last.nodes)}, "
        f"{_percent(before[most])} at {first.nodes:,}."
    )


def shares(row: Row) -> dict[str, float]:
    """The share of a step that each of its parts takes."""
    found = table.parts(row)
    total = sum(found.values())
    return {phase: seconds / total for phase, seconds in found.items()} if total else {}


def _compare_variants(rows: Sequence[Row]) -> list[str]:
    """Whether the variants differ at the largest size by more than repeats do."""
    largest = max(row.nodes for row in rows if row.runs)
    here = sorted((row for row in rows if row.nodes == largest and row.runs), key=rate)
    if len(here) < 2:
        return []
    slowest, best = here[0], here[-1]
    apart = rate(best) / rate(slowest)
    noise = max((row.spread("samples_per_s") or 0.0) for row in (slowest, best))
    clear = "" if apart - 1 > noise else f", no more apart than repeats, which differ by up to {units.percent(noise)}"
    return [
        f"On {table.nodes_words(largest)} {best.variant or 'the setting as given'} is fastest, {apart:,.2f} times "
        f"{slowest.variant or 'the setting as given'}, the slowest{clear}."
    ]


def _staging(rows: Sequence[Row]) -> list[str]:
    staged = [(row, value) for row in rows if (value := row.middle("staging_bytes_per_s"))]
    if len(staged) < 2:
        return []
    (first, before), (last, after) = staged[0], staged[-1]
    kept = after / before * first.nodes / last.nodes
    return [
        f"Staging brings {units.significant(before / 1e9)} GB/s to {table.nodes_words(first.nodes)} and "
        f"{units.significant(after / 1e9)} GB/s to {last.nodes:,} (efficiency {_percent(kept)})."
    ]


def _training(found: Sequence[Solution]) -> list[str]:
    if not found:
        return []
    quick, cheap = fastest(found), cheapest(found)
    best = f"{table.nodes_words(quick.nodes)}: {units.duration(quick.time_s)}, {units.significant(quick.node_hours)}"
    if quick is cheap:
        return [f"A training to the target is fastest and cheapest on {best} node-hours."]
    return [
        f"A training to the target is fastest on {best} node-hours; cheapest on {table.nodes_words(cheap.nodes)}: "
        f"{units.duration(cheap.time_s)}, {units.significant(cheap.node_hours)} node-hours."
    ]


def _scatter(rows: Sequence[Row]) -> str:
    """How far repeats are apart, which is what differences between sizes are to be held against."""
    known = [spread for row in rows if (spread := row.spread("samples_per_s")) is not None]
    once = [row for row in rows if len(row.runs) == 1]
    if not known:
        return "Every size has one repeat: how far chance moves these figures is not known."
    text = f"Repeats of a size differ by up to {units.percent(max(known))} of their median throughput"
    return text + (f"; {len(once)} of {len(known) + len(once)} points have one repeat only." if once else ".")


def fit_words(variant: str, fit: SpeedFit) -> str:
    """A fit with its interval and its warning."""
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
    """What a reader must know beside the figures."""
    found = [f"{MEANING[content.mode]} Speed-up and efficiency are relative to the smallest size that has figures."]
    length = "Each run trained to its target" if content.steps is None else f"Each run took {content.steps:,} steps"
    if content.warmup_steps:
        found.append(
            f"{length}. Its first {content.warmup_steps:,} steps, the warm-up, are in no figure of throughput, of a "
            "step or of a sample."
        )
    else:
        found.append(f"{length}. No warm-up was left out.")
    found.append(
        "Figures are medians over repeats; spread: largest minus smallest over the median. Shares of a step are those "
        "of the mean over ranks. The slowest rank may be another one in each column."
    )
    if any(run.cpu_used for row in content.rows for run in row.runs):
        found.append("CPU use: cores kept busy over compute threads, the mean over ranks; lowest: of any rank.")
    if all(run.peak_flops is None for row in content.rows for run in row.runs):
        found.append("The peak FLOP/s of the ranks was not measured in these runs, so that its use is not known.")
    else:
        found.append("FLOP/s utilization: model FLOP/s over the peak that matrix products reached on the same ranks.")
    if any(run.device_busy for row in content.rows for run in row.runs):
        found.append(
            "Accelerator busy: the part of the time on the clock in which its driver saw it work, the median over "
            "ranks; lowest: of any rank."
        )
    if content.simulated:
        found.append("Simulated nodes are processes of one machine: they share its memory, and no network is in this.")
    if any(each.extrapolated for members in content.solutions.values() for each in members):
        found.append("* The batch lies outside of those of the convergence study: its epochs are extrapolated.")
    return [*found, *content.notes]


def _percent(share: float) -> str:
    """A share without decimals: 72 %."""
    return "under 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def _fraction(value: float) -> str:
    """A serial fraction, two digits of it: 3.1 %."""
    return (
        "unbounded" if math.isinf(value) else "0 %" if abs(value) < 1e-6 else f"{units.significant(100 * value, 2)} %"
    )
