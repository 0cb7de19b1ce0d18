"""Predictions as tables and sentences: a line for each size, its parts, what limits it, and notes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.application_names import application_name
from hpcbench.prediction.changes import best_change, limit
from hpcbench.prediction.forecast import PARTS, Forecast, Interval
from hpcbench.prediction.pool import energy_kwh, node_hours
from hpcbench.prediction.predictions import Predicted, Predictions
from hpcbench.prediction.request import FITTED_TO
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.tables import WIDTH, table

MINUTE_S, GB = 60.0, 1e9
SOURCE = (
    "Predicted from counts, the machine's file and published runs of MLPerf HPC v0.7 to v2.0 (docs/prediction.md). "
    f"Not a result of MLPerf. {NOT_VERIFIED}."
)
SHORT = {
    "twice the memory bandwidth": "memory x2", "twice the network": "network x2",
    "data there twice as fast": "staging x2", "all ranks alike": "no jitter", "10 % fewer epochs": "epochs -10 %",
}  # fmt: skip
"""Changes as headers."""


@dataclass(frozen=True)
class Sheet:
    """A table, the same as text and on a page."""

    heading: str
    headers: Sequence[str]
    lines: Sequence[Sequence[str]]
    left: Sequence[str] = ()
    """Columns of words, aligned left."""

    def as_text(self) -> str:
        """The heading above the table."""
        right = [name for name in self.headers if name not in self.left]
        return f"{self.heading}\n{table(self.headers, self.lines, right=right)}"


def text_of(found: Predictions) -> str:
    """Everything, within 100 columns."""
    blocks: list[str] = []
    for each in found.predicted:
        blocks.append(heading(each, found))
        blocks += [sheet.as_text() for sheet in sheets(each)]
        blocks.append("\n".join(textwrap.fill(note, WIDTH - 2, subsequent_indent="  ") for note in notes(each)))
    if found.advice:
        blocks.append(advice_sheet(found).as_text())
    return "\n\n".join([*blocks, textwrap.fill(SOURCE, WIDTH - 2)])


def heading(each: Predicted, found: Predictions) -> str:
    """What is predicted."""
    several = f", {found.options.instances:,} trainings at once" if found.options.instances > 1 else ""
    measured = len(each.request.calibration.runs)
    if each.request.calibration.kernels is not None:
        several += ", device time by kernels"
    by = f", calibrated by {units.counted(measured, 'run')}" if measured else f", code as of {found.options.software}"
    return f"{application_name(each.request.application)} on {each.request.machine.title}{several}{by}"


def sheets(each: Predicted) -> list[Sheet]:
    """All tables of an application."""
    slower = [interconnect_sheet(each)] if each.interconnect else []
    return [times_sheet(each), parts_sheet(each), changes_sheet(each), *slower]


def made(each: Predicted) -> list[Forecast]:
    """The sizes that could be predicted."""
    return [size.forecast for size in each.sizes if size.forecast is not None]


def times_sheet(each: Predicted) -> Sheet:
    """Time, epochs, step and cost of each size."""
    watts = each.request.calibration.watts
    headers = ["nodes", "batch (local)", "minutes", "80 % interval", "epochs", "step", "s per epoch", "node-hours"]
    headers += ["kWh"] if watts is not None else []
    rows = []
    for size in each.sizes:
        found = size.forecast
        if found is None:
            rows.append([f"{size.nodes:,}", "not predicted", *[""] * (len(headers) - 2)])
            continue
        rows.append([
            f"{size.nodes:,}", batch_words(found), minutes(found.time.central), span(found.time),
            f"{found.epochs.central:.1f}", units.duration(found.step.central), units.significant(found.epoch.central),
            units.significant(node_hours(found)),
            *([units.significant(energy_kwh(found, watts))] if watts is not None else []),
        ])  # fmt: skip
    return Sheet("Time to solution:", headers, rows)


def batch_words(found: Forecast) -> str:
    """``1,024 (2)``: the global and the local batch."""
    training = found.training
    local = f"{training.local_batch:g}" + (f"x{training.accumulation}" if training.accumulation > 1 else "")
    return f"{training.global_batch:,} ({local})"


def span(found: Interval) -> str:
    """Both ends of an interval, in minutes."""
    return f"{minutes(found.low)} to {minutes(found.high)}"


def minutes(seconds: float) -> str:
    """Seconds as minutes."""
    return units.significant(seconds / MINUTE_S)


def shown_parts(found: Sequence[Forecast]) -> list[str]:
    """The parts that some size has."""
    return [name for name in PARTS if any(abs(each.parts[name]) > 0 for each in found)]


def parts_sheet(each: Predicted) -> Sheet:
    """Seconds of each part; they add up to the time."""
    names = shown_parts(made(each))
    rows = [
        [f"{found.training.nodes:,}", *(f"{found.parts[name]:,.1f}" for name in names), f"{found.time.central:,.1f}"]
        for found in made(each)
    ]
    return Sheet("Parts, in seconds:", ["nodes", *names, "all"], rows)


def changes_sheet(each: Predicted) -> Sheet:
    """What limits each size, and what would move its time."""
    moved = [found for found in each.improvements if found is not None]
    rows = [
        [f"{found.training.nodes:,}", limit(found), *(change_words(part) for part in change.values())]
        for found, change in zip(made(each), moved, strict=True)
    ]
    headers = ["nodes", "most of the time", *(SHORT[name] for name in moved[0])]
    return Sheet("What would move the time:", headers, rows, left=["most of the time"])


def change_words(part: float) -> str:
    """``-4 %``."""
    return f"{100 * part:+.0f} %"


def interconnect_sheet(each: Predicted) -> Sheet:
    """What a slower interconnect costs."""
    moved = [found for found in each.interconnect if found is not None]
    rows = [
        [f"{found.training.nodes:,}", *(f"{100 * part:+.1f} %" for part in change.values())]
        for found, change in zip(made(each), moved, strict=True)
    ]
    return Sheet("With a slower interconnect (messages alone):", ["nodes", *moved[0]], rows)


def notes(each: Predicted) -> list[str]:
    """What a reader must know about these numbers."""
    found = [f"Epochs: {words}." for words in dict.fromkeys(one.training.epochs.words for one in made(each))]
    platform = made(each)[0].training.platform
    bounded = [name for name in platform.missing if name in ("network_gb_s", "accelerator_link_gb_s")]
    if bounded:
        found.append(f"Unknown in {platform.name}.yaml: {', '.join(bounded)}; taken from the least to the most of "
                     "similar machines, within the interval.")  # fmt: skip
    if platform.model != "A100" and FITTED_TO in platform.accelerator and not each.request.calibration.runs:
        found.append(f"The model is fitted to A100; {platform.model} is beyond that.")
    if each.request.input_gb_s is None:
        found.append("Input: no rate of the staged data is given (--input-gb-s); reading is taken to be hidden.")
    found += room_notes(each)
    found += [f"{units.counted(size.nodes, 'node')}: {size.refusal}." for size in each.sizes if size.forecast is None]
    best = [best_change(moved) for moved in each.improvements if moved is not None][-1]
    found.append(
        f"On {units.counted(made(each)[-1].training.nodes, 'node')} {best[0]} helps most: {change_words(best[1])}."
    )
    return found


def room_notes(each: Predicted) -> list[str]:
    """Sizes whose part of the dataset does not fit the storage that the machine's file gives for a node."""
    rooms = [(storage.gb * GB, storage.path) for storage in each.request.machine.storage if storage.gb and storage.path]
    if not rooms:
        return []
    room, path = max(rooms)
    found = []
    for one in made(each):
        nodes = one.training.nodes
        landed, most = (units.prefixed(value, "B") for value in (one.training.work.landed_on_node(nodes), room))
        if one.training.work.landed_on_node(nodes) > room:
            found.append(
                f"{units.counted(nodes, 'node')}: {landed} of the dataset land on each, more than the {most} of {path}."
            )
    return found


def advice_sheet(found: Predictions) -> Sheet:
    """The shares of the pool for each aim."""
    is_known = found.advice[0].energy_kwh is not None
    headers = ["least", "application", "nodes", "batch", "minutes", "node-hours", *(["kWh"] if is_known else [])]
    headers.append("all of them")
    rows = []
    for advice in found.advice:
        for number, share in enumerate(advice.shares):
            whole = f"{minutes(advice.time_s)} min, {units.significant(advice.node_hours)} node-hours"
            whole += f", {units.significant(advice.energy_kwh)} kWh" if is_known else ""
            rows.append([
                advice.aim if number == 0 else "", share.application, f"{share.forecast.training.nodes:,}",
                f"{share.forecast.training.global_batch:,}", minutes(share.forecast.time.central),
                units.significant(share.node_hours), *([units.significant(share.energy_kwh)] if is_known else []),
                whole if number == 0 else "",
            ])  # fmt: skip
    title = f"Shares of {found.options.pool:,} nodes, all trainings at once"
    title += ":" if is_known else " (energy needs a --calibrate run of each that read it):"
    return Sheet(title, headers, rows, left=["least", "application", "all of them"])
