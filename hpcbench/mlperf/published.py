"""The published results that come with the suite as figures: entries and runs of MLPerf HPC v0.7, v1.0 and v2.0.

``hpcbench/published/README.md`` says where they come from and what is left out.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hpcbench.measure.log_rules import PUBLISHED_TARGETS
from hpcbench.mlperf.reached_target import QUALITIES, why_missed
from hpcbench.mlperf.run_record import RunRecord, source

FOLDER = Path(__file__).parents[1] / "published"
FOLDERS = {"time to train": "strong", "throughput": "weak"}
"""The folder of each mode in a round; v0.7 has none."""

T = TypeVar("T")
Row = Mapping[str, str]


@dataclass
class PublishedRun(RunRecord):
    """A run of a round. Only these summaries of its epochs are known, so ``epochs_s`` and ``evaluations_s`` are empty.

    The fields are named after the columns that ``runs_table`` derives from the lists, and take their place there.
    """

    first_epoch_s: float | None = field(default=None, metadata=source("as in epochs_s", "s"))
    epoch_median_s: float | None = field(default=None, metadata=source("as in epochs_s, after the first", "s"))
    training_s: float | None = field(default=None, metadata=source("sum of epochs_s", "s"))
    first_evaluation_s: float | None = field(default=None, metadata=source("as in evaluations_s", "s"))
    evaluation_median_s: float | None = field(
        default=None, metadata=source("as in evaluations_s, after the first", "s")
    )
    evaluation_s: float | None = field(default=None, metadata=source("sum of evaluations_s", "s"))


@dataclass(frozen=True)
class PublishedEntry:
    """An entry of a round. ``None`` is what its logs do not say. Figures of runs are medians over the runs."""

    round: str
    organization: str
    system: str
    application: str
    mode: str
    """``time to train`` or ``throughput``."""
    division: str
    category: str
    """From the system description: ``onprem`` or ``available``. Logs may say otherwise."""
    accelerator: str
    framework: str
    system_nodes: int | None
    """From the system description; for a throughput entry, those of all instances."""
    nodes: int | None
    """Per instance."""
    accelerators: int | None
    """Per instance; a node without any counts as one."""
    runs: int
    global_batch_size: int | None
    time_to_train_s: float | None
    """Olympic mean; for time to train only."""
    all_models_s: float | None
    """From the first start to the last stop; for throughput only."""
    staging_s: float | None
    """Within the clock."""
    epochs: float | None
    epoch_s: float | None
    """Training of an epoch after the first."""
    evaluation_s: float | None
    quality: float | None
    train_samples: int | None
    validation_samples: int | None
    samples_per_s: float | None
    optimizer: str | None
    recipe: dict[str, Any]

    @property
    def samples_per_s_per_accelerator(self) -> float | None:
        """Training samples per second and accelerator."""
        if self.samples_per_s is None or not self.accelerators:
            return None
        return self.samples_per_s / self.accelerators

    @property
    def models_per_min(self) -> float | None:
        """Models per minute of a throughput entry."""
        return None if self.all_models_s is None else 60 * self.runs / self.all_models_s

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What distinguishes it from all other entries."""
        return self.round, self.organization, self.system, self.application, self.mode


def published_entries() -> list[PublishedEntry]:
    """Return all entries, ordered by round, organization and system."""
    with (FOLDER / "entries.csv").open(encoding="utf-8", newline="") as lines:
        return [entry_of(row) for row in csv.DictReader(lines)]


def published_applications() -> list[str]:
    """Return the names of the applications that have entries."""
    return sorted({entry.application for entry in published_entries()})


def published_runs() -> list[RunRecord]:
    """Return all runs of CosmoFlow and DeepCAM, each a ``PublishedRun``, by round, organization, system and file."""
    entries = {entry.key: entry for entry in published_entries()}
    with gzip.open(FOLDER / "runs.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        return [run_of(row, entries) for row in csv.DictReader(lines)]


def value(row: Row, name: str, kind: Callable[[str], T]) -> T | None:
    """The value of a cell; ``None`` if it is empty."""
    return kind(row[name]) if row[name] else None


def entry_of(row: Row) -> PublishedEntry:
    """The entry of a row."""
    names = (
        "round",
        "organization",
        "system",
        "application",
        "mode",
        "division",
        "category",
        "accelerator",
        "framework",
    )
    whole = ("system_nodes", "nodes", "accelerators", "global_batch_size", "train_samples", "validation_samples")
    measured = (
        "time_to_train_s", "all_models_s", "staging_s", "epochs", "epoch_s", "evaluation_s", "quality", "samples_per_s",
    )  # fmt: skip
    cells: dict[str, Any] = {name: row[name] for name in names}
    cells |= {name: value(row, name, int) for name in whole}
    cells |= {name: value(row, name, float) for name in measured}
    return PublishedEntry(
        **cells, runs=int(row["runs"]), optimizer=value(row, "optimizer", str),
        recipe=value(row, "recipe", json.loads) or {},
    )  # fmt: skip


def run_of(row: Row, entries: Mapping[tuple[str, str, str, str, str], PublishedEntry]) -> PublishedRun:
    """The run of a row; what is common to all runs of its entry is taken from the entry."""
    record = PublishedRun(path=path_of(row), origin="published", pruned=row["pruned"] == "1")
    for name in ("round", "organization", "system", "application", "mode", "division", "status"):
        setattr(record, name, value(row, name, str))
    for name in ("seed", "global_batch_size", "nodes", "accelerators", "train_samples", "validation_samples"):
        setattr(record, name, value(row, name, int))
    for name in (
        "start_unix_s", "time_to_train_s", "init_s", "staging_s", "staging_before_s", "epochs", "quality", "rest_s",
        "first_epoch_s", "epoch_median_s", "training_s", "first_evaluation_s", "evaluation_median_s", "evaluation_s",
    ):  # fmt: skip
        setattr(record, name, value(row, name, float))
    entry = entries[row["round"], row["organization"], row["system"], row["application"], row["mode"]]
    record.accelerator = entry.accelerator
    record.optimizer, record.recipe = entry.optimizer, dict(entry.recipe)
    if record.time_to_train_s is None:
        record.reason = "the log ends before run_stop"
    elif record.status is None:
        record.reason = "run_stop has no status"
    elif record.status == "success" and record.quality is not None and record.application is not None:
        target, lower = PUBLISHED_TARGETS.get(record.application), QUALITIES.get(record.application) == "eval_error"
        record.reason = why_missed([record.quality], target, lower)
    set_rates(record)
    return record


def set_rates(record: PublishedRun) -> None:
    """Set local batch and samples per second, if everything that they are computed from is known."""
    if record.accelerators and record.global_batch_size:
        record.local_batch_size = record.global_batch_size / record.accelerators
    if record.train_samples and record.epoch_median_s:
        record.samples_per_s = record.train_samples / record.epoch_median_s
        if record.accelerators:
            record.samples_per_s_per_accelerator = record.samples_per_s / record.accelerators


def path_of(row: Row) -> str:
    """Path of the log below the folder that holds the rounds, as ``find_logs`` knows them."""
    mode = [] if row["round"] == "v0.7" else [FOLDERS[row["mode"]]]
    pruned = ["pruned_results"] if row["pruned"] == "1" else []
    parts = [
        row["round"],
        row["organization"],
        "results",
        row["system"],
        *mode,
        row["application"],
        *pruned,
        row["file"],
    ]
    return "/".join(parts)
