"""The rules of a campaign: what a file of rules holds, with its types and bounds.

Those of the suite are in ``hpcbench/campaigns``; a user's own are in the folder that ``HPCBENCH_CAMPAIGNS`` names, or
in ``~/.config/hpcbench/campaigns``. A campaign has categories, such as baseline and optimized, and scenarios, each a
matrix of runs with a metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpcbench.config.bounds import within
from hpcbench.config.schema import MOST_EPOCHS, MOST_SAMPLES, Precision

Kind = Literal["fixed", "bounded", "free"]
What = Literal["seconds_per_step", "seconds_of_epochs", "minutes_to_quality", "minutes_of_all"]
Statistic = Literal["median", "mean", "olympic", "all"]
Excluded = Literal["start", "staging"]
Validity = Literal["target", "epochs", "samples", "seeds"]
Column = Literal[
    "category", "scenario", "system", "nodes", "replicate", "accelerators_per_node", "accelerators", "local_batch",
    "global_batch", "precision", "staged", "scheduler", "start_rate", "optimizer", "seconds_per_step",
    "minutes_per_epoch", "seconds", "minutes", "models", "epochs", "quality", "seed", "samples_per_s_per_accelerator",
    "valid",
]  # fmt: skip
UNITS: Mapping[What, str] = {
    "seconds_per_step": "s", "seconds_of_epochs": "s", "minutes_to_quality": "min", "minutes_of_all": "min",
}  # fmt: skip
MOST_NODES = 2**20


@dataclass(frozen=True)
class Source:
    """Where rules are from."""

    text: str
    """Title and version: a commit, or a date."""
    url: str
    read: str
    """YYYY-MM-DD."""


@dataclass(frozen=True)
class Category:
    """A kind of entry, such as baseline, and what it may change."""

    name: str
    code: str
    """What may change in the code, in words."""
    precision: tuple[Precision, ...]
    """Values of ``train.precision`` that it allows; its runs have the first unless a user names another."""
    precision_rule: str
    """What the source says about precision; if it says nothing, that fact and what this file takes."""
    released: bool = False
    """Whether the installed packages must be unchanged: as in their wheel's RECORD, or as in their commit."""
    others: Literal["fixed", "free"] = "fixed"
    """What holds for settings that decide a result but that no rule names."""
    convergence_ruleset: Literal["", "1.0.0", "2.0.0", "3.0.0"] = ""
    """Rules of MLPerf HPC whose reference convergence points an entry is tested against; empty: none."""
    division: Literal["", "open", "closed"] = ""
    """MLPerf's division that the official logs of its runs name; empty: that of the preset, or the user's."""


@dataclass(frozen=True)
class SettingRule:
    """What holds for some settings in some categories. Of several rules, the one with the longest match counts."""

    settings: tuple[str, ...]
    """Dotted names, or groups such as ``schedule``."""
    kind: Kind
    rule: str
    """In the words of the source."""
    categories: tuple[str, ...] = ()
    """Empty: all."""
    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """The dataset of a scenario."""

    text: str
    train_samples: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    validation_samples: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))


@dataclass(frozen=True)
class Batch:
    """The part of the batch that is fixed; if neither size is, the submitter chooses a global batch."""

    local_size: int | None = field(default=None, metadata=within(1, 2**20))
    """Samples per accelerator."""
    global_size: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    """Samples per optimizer step."""
    accumulation: bool = False
    """Whether a step may have several micro-batches."""


@dataclass(frozen=True)
class Stop:
    """When a run ends: at its target, or after ``epochs``."""

    epochs: int = field(metadata=within(1, MOST_EPOCHS))
    """Most epochs; without a target, the exact number."""
    target: float | None = field(default=None, metadata=within(-1e9, 1e9))


@dataclass(frozen=True)
class Metric:
    """The figure of a run, and that of all its replicates together. Lower is better."""

    what: What
    statistic: Statistic
    text: str
    """In the words of the source."""
    epochs: int | None = field(default=None, metadata=within(1, MOST_EPOCHS))
    """For ``seconds_of_epochs``: how many epochs."""
    excludes: tuple[Excluded, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A published result of a scenario."""

    system: str
    category: str
    nodes: int = field(metadata=within(1, MOST_NODES))
    accelerators_per_node: int = field(metadata=within(1, 1024))
    value: float = field(metadata=within(0, 1e12, open_low=True))
    local_batch: int | None = field(default=None, metadata=within(1, 2**20))
    epochs: float | None = field(default=None, metadata=within(0, MOST_EPOCHS))
    """Epochs to the target; of several instances, those of one."""
    global_batch: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    """Samples per optimizer step, if the rules leave the batch open; of several instances, those of one."""
    models: int | None = field(default=None, metadata=within(1, MOST_NODES))
    """Instances of a throughput scenario that count."""
    note: str = ""
    """What is different from the scenario."""


@dataclass(frozen=True)
class Rehearsal:
    """The same shape of rules at a size that takes seconds, on simulated nodes and data. It means nothing else."""

    nodes: tuple[int, ...] = (1,)
    replicates: int = field(default=1, metadata=within(1, 1000))
    local_batch: int | None = field(default=None, metadata=within(1, 2**20))
    global_batch: int | None = field(default=None, metadata=within(1, MOST_SAMPLES))
    epochs: int = field(default=1, metadata=within(1, MOST_EPOCHS))
    """Instead of ``stop.epochs``."""
    metric_epochs: int | None = field(default=None, metadata=within(1, MOST_EPOCHS))
    """Instead of ``metric.epochs``."""
    target: float | None = field(default=None, metadata=within(-1e9, 1e9))
    train_samples: int = field(default=8, metadata=within(1, 100_000))
    validation_samples: int = field(default=4, metadata=within(1, 100_000))
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings on top of the preset ``smoke``; what is fixed is fixed to these."""


@dataclass(frozen=True)
class Scenario:
    """A matrix of runs with a metric."""

    name: str
    title: str
    application: str
    preset: str
    dataset: Dataset
    stop: Stop
    metric: Metric
    columns: tuple[Column, ...]
    """Columns of the response table."""
    rehearsal: Rehearsal
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all runs on top of the preset; what is fixed is fixed to these."""
    rules: tuple[SettingRule, ...] = ()
    batch: Batch = field(default_factory=Batch)
    scales: tuple[int, ...] = ()
    """Sizes as multiples of the smallest, N; empty: the submitter's choice."""
    scales_rule: str = ""
    replicates: int = field(default=1, metadata=within(1, 10_000))
    """Runs of each size; in a throughput scenario, the fewest instances."""
    throughput: bool = False
    """Whether its runs are instances side by side, with one figure for all of them together."""
    seeds: str = ""
    """What the source says about seeds."""
    validity: tuple[Validity, ...] = ()
    """What a run must have to count."""
    references: tuple[Reference, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Commitment:
    """A value that was promised, for example in a contract or by the runs before a maintenance."""

    scenario: str
    category: str
    nodes: int = field(metadata=within(1, MOST_NODES))
    value: float = field(metadata=within(0, 1e12, open_low=True))
    """In the unit of the scenario's metric."""
    tolerance: float = field(default=0.0, metadata=within(0, 10))
    """A measured value may be higher by this fraction."""
    repeats: int = field(default=1, metadata=within(1, 10_000))
    """Valid runs needed for a verdict."""


@dataclass(frozen=True)
class Campaign:
    """The rules of a campaign."""

    name: str
    title: str
    sources: tuple[Source, ...]
    categories: tuple[Category, ...]
    scenarios: tuple[Scenario, ...]
    acceptance: tuple[Commitment, ...] = ()
    notes: tuple[str, ...] = ()
