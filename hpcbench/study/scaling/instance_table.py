"""The instances of a throughput study, reported as by the rules: number, time, models per minute, and pruned ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hpcbench.results import units
from hpcbench.study.scaling.concurrency import CLOCKS_S, LATE, Cause
from hpcbench.study.scaling.point_results import PointResult, by_variant
from hpcbench.study.scaling.table import Sheet, place, titled

CAUSES: Mapping[Cause, str] = {
    "failed": "failed", "late": "began at another time than the others", "interrupted": "interrupted for too long",
    "missed": "missed the target",
}  # fmt: skip
MOST_NAMED = 3
"""Most pruned instances that are named for each cause."""


def instance_sheets(rows: Sequence[PointResult], *, timed: bool) -> list[Sheet]:
    """A sheet per variant with a line per size; ``timed``: the runs trained to their target, so there are models."""
    gpus = any(row.gpus_per_node for row in rows)
    headers = ["nodes", *(["accelerators", "each"] if gpus else ["each"]), "instances", *(["models"] if timed else [])]
    headers += ["time", *(["models/min"] if timed else []), "last start", "all at once"]
    sheets = []
    for variant, members in by_variant(rows).items():
        lines = []
        for row in members:
            per_node = row.gpus_per_node if gpus else 1
            cells = [f"{row.nodes:,}", *([f"{row.nodes * per_node:,}"] if gpus else [])]
            cells += [f"{row.nodes // row.instances * per_node:,}", counted(row, "instances")]
            cells += [counted(row, "models")] if timed else []
            cells.append(units.duration(row.middle("time_s" if timed else "span_s")))
            cells += [units.significant(row.middle("models_per_minute"))] if timed else []
            late, share = row.middle("last_start_s"), row.middle("together")
            lines.append([*cells, "-" if late is None else f"+{units.duration(late)}", units.percent(share)])
        of = "accelerators of the whole system and of each instance" if gpus else "nodes of all and of each instance"
        sheets.append(Sheet(titled(variant, of), headers, lines))
    return sheets


def counted(row: PointResult, name: str) -> str:
    """Instances that count, or models, of those requested: ``8 of 8``, or ``7-8 of 8`` if repeats differ."""
    counts = sorted({getattr(run, name) for run in row.runs})
    ends = f"{counts[0]:,}" + (f"-{counts[-1]:,}" if len(counts) > 1 else "")
    return f"{ends} of {row.instances:,}"


def pruned_lines(rows: Sequence[PointResult]) -> list[str]:
    """How many instances of each size do not count, by cause, with the names and reasons of the first ones."""
    lines = []
    for members in by_variant(rows).values():
        for row in members:
            pruned = [one for run in row.runs for one in run.pruned]
            if not pruned:
                continue
            causes = Counter(one.cause for one in pruned)
            counts = ", ".join(f"{causes[cause]} {words}" for cause, words in CAUSES.items() if causes[cause])
            named = [one for cause in causes for one in [o for o in pruned if o.cause == cause][:MOST_NAMED]]
            told = "; ".join(f"{one.name}: {one.reason.rstrip('.')}" for one in named)
            more = f"; and {len(pruned) - len(named):,} more" if len(pruned) > len(named) else ""
            total = row.instances * len(row.runs)
            lines.append(f"{place(row)}: {len(pruned):,} of {total:,} instances pruned: {counts} ({told}{more}).")
    return lines


def instance_notes(rows: Sequence[PointResult], *, timed: bool) -> list[str]:
    """What the figures of instances mean, and how far the clocks of their nodes can be trusted."""
    shortest = min((value for row in rows for value in row.values("span_s")), default=0.0)
    doubt = f", {units.percent(min(1.0, CLOCKS_S / shortest))} of the shortest time here" if shortest else ""
    reached = " of those that reached the target" if timed else ""
    return [
        f"Time: from the first run_start to the last run_stop{reached}, by the logs of the "
        f"instances. Clocks of nodes are taken to agree to {CLOCKS_S:g} s{doubt}.",
        f"Instances count as concurrent where each begins within {100 * LATE:g} % of the median training after the "
        "first, and none is interrupted for longer. Others are pruned; a repeat that keeps half of its instances or "
        "fewer is no result. All at once: the part of the training time of all instances in which all of them "
        "trained. Nodes of pruned instances count in the efficiency; those that missed the target still count in "
        "samples/s.",
    ]
