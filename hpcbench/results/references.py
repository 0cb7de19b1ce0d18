"""Reference runs of a preset as data, in the form of MLPerf's reference convergence points plus what a reader needs.

A file ``references/<preset>.json`` of an application holds ``{name: point}``. The keys of a point are those of the
files ``rcps_*.json`` of the ``mlperf_logging`` package (``Benchmark``, ``BS``, ``Epochs to converge``,
``Hyperparams``), and ours: ``Hardware``, ``Seconds`` and ``Seeds`` (a list each of the last two, one entry per run),
``Target``, ``Quality`` ({metric: one value per run}), ``Better`` (``lower`` or ``higher``, for these metrics),
``Baselines`` ({baseline: {metric: value}}), ``Commit`` and ``Command``, and ``Baseline commit`` where later code fitted
the baselines again.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.application import Application
from hpcbench.results import units
from staging.errors import DataError

NEEDED = ("Benchmark", "BS", "Epochs to converge", "Hyperparams")
MARGIN = 3.0
"""A claim over a baseline holds where the mean over seeds is this many standard deviations better."""
SPREAD_WORDS = "Mean ± sample standard deviation over all n runs"


@dataclass(frozen=True)
class ReferencePoint:
    """Runs of one preset and batch size with different seeds; lists hold one entry per run."""

    name: str
    preset: str
    benchmark: str
    batch_size: int
    epochs: list[float]
    hyperparameters: dict[str, Any]
    hardware: str = ""
    seconds: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    target: float | None = None
    quality: dict[str, list[float]] = field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    commit: str = ""
    command: str = ""
    better: str = "lower"

    def margin(self, metric: str, baseline: str) -> float | None:
        """By how many standard deviations over runs (n - 1) their mean is better than the baseline; negative if worse.

        ``None`` where either has no such metric or there are fewer than two runs.
        """
        values, other = self.quality.get(metric, []), self.baselines.get(baseline, {}).get(metric)
        if other is None or len(values) < 2:
            return None
        sd = statistics.stdev(values)
        gain = statistics.fmean(values) - other if self.better == "higher" else other - statistics.fmean(values)
        return gain / sd if sd else math.copysign(math.inf, gain)


def read_references(path: Path) -> list[ReferencePoint]:
    """The points of one file. Raises ``DataError`` where it does not have the form above."""
    try:
        points = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(path, f"is not readable as JSON ({error})", "restore the file") from error
    if not isinstance(points, dict) or not all(isinstance(point, dict) for point in points.values()):
        raise DataError(path, "is not an object of reference points by name", "see hpcbench/results/references.py")
    reference_points = []
    for name, point in points.items():
        if missing := [key for key in NEEDED if key not in point]:
            raise DataError(path, f"point '{name}' lacks {', '.join(missing)}", "see hpcbench/results/references.py")
        if not point["Epochs to converge"]:
            raise DataError(path, f"point '{name}' has no 'Epochs to converge'", "give one number per run")
        reference_points.append(
            ReferencePoint(
                name, path.stem, point["Benchmark"], point["BS"], point["Epochs to converge"], point["Hyperparams"],
                point.get("Hardware", ""), point.get("Seconds", []), point.get("Seeds", []), point.get("Target"),
                point.get("Quality", {}), point.get("Baselines", {}), point.get("Commit", ""), point.get("Command", ""),
                point.get("Better", "lower"),
            )
        )  # fmt: skip
    return reference_points


def references(application: Application, preset: str | None = None) -> list[ReferencePoint]:
    """The application's reference points, of all presets or of one; empty where none are recorded."""
    usual = ["smoke", "laptop", "workstation", "node", "mlperf"]
    paths = sorted((application.folder() / "references").glob("*.json"))
    paths.sort(key=lambda path: usual.index(path.stem) if path.stem in usual else len(usual))
    return [point for path in paths if preset in (None, path.stem) for point in read_references(path)]


def spread(values: Sequence[float], digits: int = 3) -> str:
    """Mean and standard deviation (n - 1) of ``values`` as text: ``8.30 ± 0.50``; of a single one, no deviation."""
    if not values:
        return units.MISSING
    mean = units.significant(statistics.fmean(values), digits)
    return mean if len(values) == 1 else f"{mean} ± {units.significant(statistics.stdev(values), 2)}"


def markdown_table(application: Application) -> str:
    """Two Markdown tables for the application's README: time and epochs to target, and quality beside the baselines."""
    points = references(application)
    if not points:
        return "No reference runs are recorded yet.\n"
    lines = [
        "| preset | hardware | global batch | target | runs (n) | epochs to target | seconds to target |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {p.preset} | {p.hardware} | {p.batch_size:,} | {units.score(p.target)} | {len(p.epochs)} "
        f"| {spread(p.epochs)} | {spread(p.seconds)} |"
        for p in points
    ]
    lines += ["", f"{SPREAD_WORDS}.", ""]
    rows = [row for point in points for row in _quality_rows(point)]
    if rows:
        lines += [
            "| preset | metric | network | baseline | score | margin |",
            "|---|---|---:|---|---:|---:|",
            *rows,
            "",
        ]
        lines += [
            "Network: mean ± standard deviation over runs. Margin: how many deviations the network is better.",
            "",
        ]
    return "\n".join(lines)


def _quality_rows(point: ReferencePoint) -> list[str]:
    rows = []
    for metric, values in point.quality.items():
        sd = statistics.stdev(values) if len(values) > 1 else 0.0
        network = f"{units.score(statistics.fmean(values))} ± {units.significant(sd, 2)}"
        for name, metrics in point.baselines.items():
            if metric not in metrics:
                continue
            margin = point.margin(metric, name)
            shown = units.MISSING if margin is None else "exact" if math.isinf(margin) else units.significant(margin, 2)
            rows.append(
                f"| {point.preset} | {metric} | {network} | {name.replace('_', ' ')} | {units.score(metrics[metric])} "
                f"| {shown} |"
            )
    return rows
