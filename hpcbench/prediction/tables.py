"""Predictions as tables: a line for each size, its parts, what limits it, and shares of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.application_names import application_name
from hpcbench.prediction.changes import limit
from hpcbench.prediction.forecast import PARTS, Forecast, Interval
from hpcbench.prediction.pool import Share, energy_kwh, node_hours
from hpcbench.prediction.predictions import Predicted, Predictions
from hpcbench.results import units
from hpcbench.results.not_verified import NOT_VERIFIED
from hpcbench.results.tables import table

MINUTE_S = 60.0
SOURCE = (
    "Predicted from counts, the machine's file and published runs of MLPerf HPC v0.7 to v2.0 (docs/prediction.md). "
    f"Not a result of MLPerf. {NOT_VERIFIED}."
)
ABREAST = 4
"""Sizes beside each other in a table of intervals."""
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


def heading(prediction: Predicted, predictions: Predictions) -> str:
    """What is predicted."""
    several = f", {predictions.options.instances:,} trainings at once" if predictions.options.instances > 1 else ""
    measured = len(prediction.request.calibration.runs)
    if prediction.request.calibration.kernels is not None:
        several += ", device time by kernels"
    by = (
        f", calibrated by {units.counted(measured, 'run')}"
        if measured
        else f", code as of {predictions.options.software}"
    )
    return f"{application_name(prediction.request.application)} on {prediction.request.machine.title}{several}{by}"


def sheets(prediction: Predicted) -> list[Sheet]:
    """All tables of an application."""
    slower = [interconnect_sheet(prediction)] if prediction.interconnect else []
    known = [times_sheet(prediction), parts_sheet(prediction), *interval_sheets(prediction)]
    return [*known, changes_sheet(prediction), *slower]


def made(prediction: Predicted) -> list[Forecast]:
    """The sizes that could be predicted."""
    return [size.forecast for size in prediction.sizes if size.forecast is not None]


def on_nodes(forecasts: Sequence[Forecast]) -> str:
    """``16, 64 nodes``: the sizes of some predictions."""
    sizes = [one.training.nodes for one in forecasts]
    return f"{', '.join(f'{nodes:,}' for nodes in sizes)} {'node' if sizes == [1] else 'nodes'}"


def times_sheet(prediction: Predicted) -> Sheet:
    """Time, epochs, step and cost of each size."""
    watts = prediction.request.calibration.watts
    headers = ["nodes", "batch (local)", "minutes", "80 % interval", "epochs", "step", "s per epoch", "node-hours"]
    headers += ["kWh"] if watts is not None else []
    rows = []
    for size in prediction.sizes:
        forecast = size.forecast
        if forecast is None:
            rows.append([f"{size.nodes:,}", "not predicted", *[""] * (len(headers) - 2)])
            continue
        rows.append([
            f"{size.nodes:,}", batch_words(forecast), minutes(forecast.time.central), span(forecast.time),
            f"{forecast.epochs.central:.1f}", units.duration(forecast.step.central),
            units.significant(forecast.epoch.central), units.significant(node_hours(forecast)),
            *([units.significant(energy_kwh(forecast, watts))] if watts is not None else []),
        ])  # fmt: skip
    return Sheet("Time to solution:", headers, rows)


def batch_words(forecast: Forecast) -> str:
    """``1,024 (2)``: the global and the local batch."""
    training = forecast.training
    local = f"{training.local_batch:g}" + (f"x{training.accumulation}" if training.accumulation > 1 else "")
    return f"{training.global_batch:,} ({local})"


def span(interval: Interval) -> str:
    """Both ends of an interval, in minutes."""
    return ends(interval, 1 / MINUTE_S)


def minutes(seconds: float) -> str:
    """Seconds as minutes."""
    return units.significant(seconds / MINUTE_S)


def shown_parts(forecasts: Sequence[Forecast]) -> list[str]:
    """The parts that some size has."""
    return [name for name in PARTS if any(abs(forecast.parts[name]) > 0 for forecast in forecasts)]


def parts_sheet(prediction: Predicted) -> Sheet:
    """Seconds of each part; they add up to the time."""
    names = shown_parts(made(prediction))
    rows = [
        [
            f"{forecast.training.nodes:,}",
            *(f"{forecast.parts[name]:,.1f}" for name in names),
            f"{forecast.time.central:,.1f}",
        ]
        for forecast in made(prediction)
    ]
    return Sheet("Parts, in seconds:", ["nodes", *names, "all"], rows)


def interval_sheets(prediction: Predicted) -> list[Sheet]:
    """The 80 % interval of epochs, step, epoch and each part: a column for each size, some sizes in a table."""
    forecasts, several = made(prediction), []
    names = [name for name in PARTS if any(one.intervals[name].high > 0 for one in forecasts)]
    for start in range(0, len(forecasts), ABREAST):
        shown = forecasts[start : start + ABREAST]
        rows = [
            ["epochs", *(ends(one.epochs) for one in shown)],
            ["step, ms", *(ends(one.step, 1000.0) for one in shown)],
            ["epoch, s", *(ends(one.epoch) for one in shown)],
            *([f"{name}, s", *(ends(one.intervals[name]) for one in shown)] for name in names),
        ]
        headers = ["interval", *(units.counted(one.training.nodes, "node") for one in shown)]
        several.append(Sheet("80 % intervals; those of parts do not add up:", headers, rows, left=["interval"]))
    return several


def ends(interval: Interval, factor: float = 1.0) -> str:
    """``12.1 to 30.4``: both ends, times ``factor``."""
    return f"{units.significant(factor * interval.low)} to {units.significant(factor * interval.high)}"


def changes_sheet(prediction: Predicted) -> Sheet:
    """What limits each size, and what would move its time."""
    moved = [change for change in prediction.improvements if change is not None]
    rows = [
        [f"{forecast.training.nodes:,}", limit(forecast), *(change_words(part) for part in change.values())]
        for forecast, change in zip(made(prediction), moved, strict=True)
    ]
    headers = ["nodes", "most of the time", *(SHORT[name] for name in moved[0])]
    return Sheet("What would move the time:", headers, rows, left=["most of the time"])


def change_words(part: float) -> str:
    """``-4 %``."""
    return f"{100 * part:+.0f} %"


def interconnect_sheet(prediction: Predicted) -> Sheet:
    """What a slower interconnect costs."""
    moved = [change for change in prediction.interconnect if change is not None]
    rows = [
        [f"{forecast.training.nodes:,}", *(f"{100 * part:+.1f} %" for part in change.values())]
        for forecast, change in zip(made(prediction), moved, strict=True)
    ]
    return Sheet("With a slower interconnect (messages alone):", ["nodes", *moved[0]], rows)


def times(count: int, name: str) -> str:
    """``3 x cosmoflow``; the name alone for one."""
    return name if count == 1 else f"{count:,} x {name}"


def advice_sheet(predictions: Predictions) -> Sheet:
    """The shares of the pool for each aim."""
    is_known = predictions.advice[0].energy_kwh is not None
    headers = ["least", "application", "nodes", "batch", "minutes", "node-hours", *(["kWh"] if is_known else [])]
    headers.append("all of them")
    rows = []
    for advice in predictions.advice:
        groups: dict[tuple[str, int], list[Share]] = {}
        for share in advice.shares:
            groups.setdefault((share.application, share.forecast.training.nodes), []).append(share)
        whole = f"{minutes(advice.time_s)} min, {units.significant(advice.node_hours)} node-hours"
        whole += f", {units.significant(advice.energy_kwh)} kWh" if is_known else ""
        for number, shares in enumerate(groups.values()):
            first, count = shares[0], len(shares)
            rows.append([
                "" if number else advice.aim, times(count, first.application), f"{first.forecast.training.nodes:,}",
                f"{first.forecast.training.global_batch:,}", minutes(first.forecast.time.central),
                units.significant(count * first.node_hours),
                *([units.significant(count * (first.energy_kwh or 0.0))] if is_known else []),
                "" if number else whole,
            ])  # fmt: skip
    title = f"Shares of {units.counted(predictions.options.pool or 0, 'node')}, all trainings at once"
    title += ":" if is_known else " (energy needs a --calibrate run of each that read it):"
    return Sheet(title, headers, rows, left=["least", "application", "all of them"])
