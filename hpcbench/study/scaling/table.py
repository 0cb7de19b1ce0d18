"""A scaling study as plain text that fits in 100 columns, and as a record per repeat."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean, median
from typing import Any

import pandas as pd

from hpcbench.phase_names import STEP_PARTS
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.plots import words
from hpcbench.results.tables import WIDTH, table
from hpcbench.study.scaling.point_results import (
    Mode,
    PointResult,
    RepeatResult,
    by_variant,
    efficiency,
    efficiency_interval,
    full_rate,
    speed_up,
)

NEVER_ZERO = ("init_s", "wall_s", "samples", "flops_per_sample", "train_samples", "peak_memory_bytes", "train_bytes",
              "validation_bytes", "folder_bytes")  # fmt: skip
"""Figures whose 0 means that they are not known."""

BESIDE = "start, evaluation and checkpoints of rank 0; staging, use of CPUs and energy of all ranks"


@dataclass(frozen=True)
class Sheet:
    """A table of one variant, the same in text and on a page."""

    heading: str
    headers: Sequence[str]
    lines: Sequence[Sequence[str]]

    def as_text(self) -> str:
        """The heading above the table."""
        text = table(self.headers, self.lines, right=self.headers)
        return "\n".join([*wrapped([self.heading]), text])


def results_table(rows: Sequence[PointResult], mode: Mode) -> str:
    """Throughput, speed-up and efficiency of every size, a table per variant, and the repeats left to run or failed."""
    return _joined([sheet.as_text() for sheet in result_sheets(rows, mode)], repeat_lines(rows))


def phases_table(rows: Sequence[PointResult]) -> str:
    """The parts of a step, what is not part of a step, and the slow nodes; empty if nothing has run."""
    sheets = (*step_sheets(rows), *rank_sheets(rows), *use_sheets(rows), *beside_sheets(rows))
    texts = [sheet.as_text() for sheet in sheets]
    return _joined(texts, [*device_lines(rows), *energy_lines(rows), *slow_lines(rows)]) if texts else ""


def result_sheets(rows: Sequence[PointResult], mode: Mode) -> list[Sheet]:
    """For each variant a line per size, including sizes without runs."""
    firsts = {variant: members[0] for variant, members in by_variant(rows).items()}
    many, timed = mode == "throughput", any(row.values("time_s") or row.misses for row in rows)
    headers = ["nodes", *(["instances"] if many else []), "ranks", "batch", "repeats", "samples/s", "spread"]
    sheets = []
    for variant, members in grouped(rows).items():
        first, lines = firsts.get(variant), []
        intervals = [None if first is None or not row.runs else efficiency_interval(row, first) for row in members]
        sure = any(intervals)
        titles = [*headers, "speed-up", "efficiency", *(["95 %"] if sure else []), *(["time"] if timed else [])]
        for row, interval in zip(members, intervals, strict=True):
            cells = [f"{row.nodes:,}", *([f"{row.instances:,}"] if many else []), f"{row.ranks:,}"]
            cells += [
                batches(row),
                f"{len(row.runs)} of {planned(row)}",
                units.significant(middle(row, "samples_per_s")),
            ]
            cells += [units.percent(row.spread("samples_per_s")), *_gains(row, first)]
            cells += [share_interval(interval)] if sure else []
            lines.append([*cells, *([units.duration(middle(row, "time_s"))] if timed else [])])
        sheets.append(Sheet(variant, titles, lines))
    return sheets


def step_sheets(rows: Sequence[PointResult]) -> list[Sheet]:
    """For each variant the milliseconds of a step and of its parts: means over ranks, and medians over repeats."""
    headers = ["nodes", "step ms", *map(words, STEP_PARTS)]
    sheets = []
    for variant, members in by_variant(rows).items():
        lines = []
        for row in members:
            step_s = parts(row)
            seconds = [sum(step_s.values()) if step_s else None, *(step_s.get(phase) for phase in STEP_PARTS)]
            cells = [units.significant(None if duration is None else 1e3 * duration) for duration in seconds]
            lines.append([f"{row.nodes:,}", *cells])
        sheets.append(Sheet(titled(variant, "milliseconds of a step, the mean over ranks"), headers, lines))
    return sheets


def rank_sheets(rows: Sequence[PointResult]) -> list[Sheet]:
    """For each variant the milliseconds of a step by part, median and slowest rank, on sizes with several ranks."""
    headers = ["nodes", "rank", "step ms", *map(words, STEP_PARTS)]
    sheets = []
    for variant, members in by_variant(rows).items():
        lines = []
        for row in members:
            for name, label in (("step_median_s", "median"), ("step_slowest_s", "slowest")):
                known = [step_s for run in row.runs if run.ranks > 1 and (step_s := getattr(run, name))]
                if not known:
                    continue
                parts_s = [[step_s[part] for step_s in known if part in step_s] for part in ("wall", *STEP_PARTS)]
                cells = [units.significant(1e3 * median(values) if values else None) for values in parts_s]
                lines.append([f"{row.nodes:,}", label, *cells])
        if lines:
            sheets.append(
                Sheet(
                    titled(variant, "milliseconds of a step, by rank for each part"),
                    headers,
                    lines,
                )
            )
    return sheets


def use_sheets(rows: Sequence[PointResult]) -> list[Sheet]:
    """For each variant the model's share of the measured peak of matrix products, and how busy accelerators were.

    Cells say what was not measured; there are no accelerator columns if processors train.
    """
    devices = any(run.device_busy or run.device_words for row in rows for run in row.runs)
    headers = ["nodes", "model FLOP/s", "peak FLOP/s", "FLOP/s utilization"]
    headers += ["accelerator busy", "lowest"] if devices else []
    sheets = []
    for variant, members in by_variant(rows).items():
        lines = []
        for row in members:
            share, peak = row.flops_utilization, row.middle("peak_flops")
            cells = [f"{row.nodes:,}", units.prefixed(row.middle("model_flops"), "FLOP/s")]
            cells.append("not measured" if peak is None else units.prefixed(peak, "FLOP/s"))
            cells.append("not measured" if share is None else units.percent(share))
            lines.append([*cells, *(_busy(row) if devices else [])])
        sheets.append(Sheet(titled(variant, "use of the processors or accelerators"), headers, lines))
    return sheets


def beside_sheets(rows: Sequence[PointResult]) -> list[Sheet]:
    """For each variant what is not part of a step: start, staging, evaluation, checkpoint; CPU use; energy."""
    headers = ["nodes", "init s", "staging s", "GB/s", "evaluation s", "checkpoint s", "CPU use", "lowest"]
    headers += ["J/sample", "energy"]
    sheets = []
    for variant, members in by_variant(rows).items():
        lines = []
        for row in members:
            used = [run.cpu_used for run in row.runs if run.cpu_used]
            per_s = middle(row, "staging_bytes_per_s")
            cells = [units.significant(middle(row, name)) for name in ("init_s", "staging_s")]
            cells.append(units.significant(None if per_s is None else per_s / 1e9))
            cells += [units.significant(middle(row, name)) for name in ("evaluation_s", "checkpoint_s")]
            cells += [_share(median(map(fmean, used)) if used else None), _share(min(map(min, used), default=None))]
            cells += [units.significant(middle(row, "joules_per_sample")), units.prefixed(middle(row, "joules"), "J")]
            lines.append([f"{row.nodes:,}", *cells])
        sheets.append(Sheet(titled(variant, BESIDE), headers, lines))
    return sheets


def grouped(rows: Sequence[PointResult]) -> dict[str, list[PointResult]]:
    """The rows of each variant in the order of the study, smallest first, including those without runs."""
    rows_by_variant: dict[str, list[PointResult]] = {}
    for row in rows:
        rows_by_variant.setdefault(row.variant, []).append(row)
    return {variant: sorted(members, key=lambda row: row.nodes) for variant, members in rows_by_variant.items()}


def middle(row: PointResult, name: str) -> float | None:
    """The median over repeats; ``None`` if no repeat has the figure."""
    figure = row.middle(name)
    return None if name in NEVER_ZERO and not figure else figure


def parts(row: PointResult) -> dict[str, float]:
    """Seconds of every known part of a step, medians over repeats; a step is shown as their sum."""
    return {phase: seconds for phase in STEP_PARTS if (seconds := row.middle(phase)) is not None}


def part_shares(row: PointResult, phase: str) -> list[float]:
    """The share of a step that a part takes, in every repeat that knows it."""
    steps = [run.step_s for run in row.runs if phase in run.step_s and sum(run.step_s.values()) > 0]
    return [step[phase] / sum(step.values()) for step in steps]


def planned(row: PointResult) -> int:
    """Number of repeats that were requested."""
    return len(row.runs) + len(row.failed) + row.left


def batches(row: PointResult) -> str:
    """The global batch size of an instance."""
    batches = [f"{batch:,}" for batch in sorted({run.global_batch_size for run in row.runs})]
    return "-".join(dict.fromkeys((batches[0], batches[-1]))) if batches else units.MISSING


def place(row: PointResult) -> str:
    """The size of a row and its variant: ``4 nodes, bucket_bytes 1048576``."""
    return nodes_words(row.nodes) + (f", {row.variant}" if row.variant else "")


def titled(variant: str, text: str) -> str:
    """The heading of a sheet: its variant, if there is one, and what it shows."""
    return f"{variant}: {text}" if variant else text[0].upper() + text[1:]


def nodes_words(count: int) -> str:
    """``1 node``, ``4 nodes``."""
    return f"{count:,} node" + ("s" if count != 1 else "")


def repeat_lines(rows: Sequence[PointResult]) -> list[str]:
    """Repeats that failed, with the reason, missed the target or are left to run, in the order of the table."""
    lines = []
    for members in grouped(rows).values():
        for row in members:
            if row.failed:
                reasons = "; ".join(dict.fromkeys(reason.rstrip(".") for reason in row.failed))
                lines.append(f"{place(row)}: {len(row.failed)} of {planned(row)} repeats failed: {reasons}.")
            if row.misses:
                lines.append(f"{place(row)}: {row.misses} of {planned(row)} repeats missed their target.")
            if row.left:
                lines.append(f"{place(row)}: {row.left} of {planned(row)} repeats left to run.")
    return lines


def energy_lines(rows: Sequence[PointResult]) -> list[str]:
    """Where the energy was read, or why there is none; with the points of each if there are several answers."""
    said: dict[str, list[str]] = {}
    for members in by_variant(rows).values():
        for row in members:
            for run in row.runs:
                text = run.energy_words or ("source not recorded" if run.joules is not None else "not measured")
                points = said.setdefault(text.rstrip("."), [])
                points += [place(row)] if place(row) not in points else []
    if len(said) == 1:
        return [f"Energy: {text}." for text in said]
    return [f"Energy at {'; '.join(points)}: {text}." for text, points in said.items()]


def device_lines(rows: Sequence[PointResult]) -> list[str]:
    """Why the busy time of accelerators is not known, with the sizes that lack it."""
    said: dict[str, list[str]] = {}
    for members in by_variant(rows).values():
        for row in members:
            for text in dict.fromkeys(run.device_words.rstrip(".") for run in row.runs if run.device_words):
                said.setdefault(text, []).append(place(row))
    return [f"Accelerator busy not measured at {'; '.join(points)}: {text}." for text, points in said.items()]


def slow_lines(rows: Sequence[PointResult]) -> list[str]:
    """Every node that was slower than the others, and in how many repeats."""
    lines = []
    for members in by_variant(rows).values():
        for row in members:
            for node, count in Counter(node for run in row.runs for node in run.slow).items():
                lines.append(f"{place(row)}: {node.rstrip('.')} ({count} of {len(row.runs)} repeats).")
    return lines


def results_frame(rows: Sequence[PointResult]) -> pd.DataFrame:
    """A record per repeat that is done or failed, with every figure; unknown figures are not-a-number."""
    records: list[dict[str, Any]] = []
    firsts = {variant: members[0] for variant, members in by_variant(rows).items()}
    for members in grouped(rows).values():
        for row in members:
            point: dict[str, Any] = {"variant": row.variant, **row.settings, "nodes": row.nodes}
            point |= {name: getattr(row, name) for name in ("instances", "ranks_per_node", "cores_per_node")}
            point["gpus_per_node"] = row.gpus_per_node
            for number, run in enumerate(row.runs, 1):
                gain = run.samples_per_s / full_rate(firsts[row.variant])
                gains = {"speed_up": gain, "efficiency": gain * firsts[row.variant].nodes / row.nodes}
                done = {"repeat": number, "status": "done"} | _figures(run) | gains
                records.append(point | done | {"verified": NOT_VERIFIED})
            for number, reason in enumerate(row.failed, len(row.runs) + 1):
                records.append(point | {"repeat": number, "status": "failed", "ranks": row.ranks, "reason": reason})
    return pd.DataFrame(records)


def wrapped(lines: Sequence[str]) -> list[str]:
    """Each sentence in lines of at most 100 columns."""
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ")]


def _figures(run: RepeatResult) -> dict[str, Any]:
    """Every figure of a repeat by its name, which has its unit."""
    figures: dict[str, Any] = {}
    for name in (field.name for field in fields(RepeatResult)):
        value = getattr(run, name)
        if name == "step_s":
            figures["step_s"] = sum(value.values()) if value else math.nan
            figures |= {f"step_{phase}_s": value.get(phase, math.nan) for phase in STEP_PARTS}
        elif name in ("step_median_s", "step_slowest_s"):
            figures |= {
                f"{name.removesuffix('_s')}_{part}_s": value.get(part, math.nan) for part in ("wall", *STEP_PARTS)
            }
        elif name == "cpu_used":
            figures["cpu_used_mean"] = fmean(value) if value else math.nan
            figures["cpu_used_lowest"] = min(value, default=math.nan)
        elif name == "device_busy":
            figures["device_busy_median"] = median(value) if value else math.nan
            figures["device_busy_lowest"] = min(value, default=math.nan)
        elif name == "slow":
            figures["slow_nodes"] = "; ".join(value)
        elif name == "pruned":
            figures["pruned"] = "; ".join(f"{instance.name}: {instance.reason}" for instance in value)
        elif name == "clocks":
            figures["models_per_minute"] = math.nan if run.models_per_minute is None else run.models_per_minute
        else:
            figures[name] = math.nan if value is None or (name in NEVER_ZERO and not value) else value
    return figures


def _busy(row: PointResult) -> list[str]:
    """The median over ranks and the lowest of any rank, from the repeats that measured them."""
    known = [run.device_busy for run in row.runs if run.device_busy]
    if not known:
        return ["not measured", "not measured"]
    return [units.percent(median(map(median, known))), units.percent(min(map(min, known)))]


def _gains(row: PointResult, first: PointResult | None) -> list[str]:
    if first is None or not row.runs:
        return [units.MISSING, units.MISSING]
    return [f"{speed_up(row, first):,.2f}", units.percent(efficiency(row, first))]


def share_interval(interval: tuple[float, float] | None) -> str:
    """An interval of a share, in percent: ``74 to 88``."""
    return units.MISSING if interval is None else f"{100 * interval[0]:.0f} to {100 * interval[1]:.0f}"


def _share(value: float | None) -> str:
    return units.MISSING if value is None else f"{100 * value:.0f} %"


def _joined(blocks: Sequence[str], lines: Sequence[str]) -> str:
    return "\n\n".join([*blocks, *(["\n".join(wrapped(lines))] if lines else [])])
