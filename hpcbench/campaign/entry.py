"""What a user wants from a campaign: a scenario in a category on a site, with settings, and the runs' configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpcbench.application import Application, find_application
from hpcbench.batch.job_request import JobRequest
from hpcbench.campaign.categories import OPTIONS, check_category, shown
from hpcbench.campaign.rules import Batch, Campaign, Category, Dataset, Scenario, Stop
from hpcbench.config.read_yaml import read_yaml
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.study.scaling.point_results import Mode
from hpcbench.study.scaling.request import dotted
from staging.errors import InputError


@dataclass(frozen=True)
class Entry:
    """A scenario in a category, with what the submitter chooses."""

    campaign: Campaign
    scenario: Scenario
    """In a rehearsal, the scaled-down one (``rehearsed``)."""
    category: Category
    rehearsal: bool = False
    site: str = "local"
    nodes: tuple[int, ...] = ()
    """Nodes of each size."""
    instance_nodes: int | None = None
    """Nodes of an instance of a throughput scenario."""
    preset: str | None = None
    """A preset other than the scenario's, as far as the rules allow what it sets."""
    global_batch: int | None = None
    """The global batch, if the rules leave it open."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted settings of the user."""
    files: tuple[Path, ...] = ()
    request: JobRequest = field(default_factory=JobRequest)
    stages: bool = False
    command: str = ""

    @property
    def application(self) -> Application:
        """The application of the scenario."""
        return find_application(self.scenario.application)

    @property
    def own_preset(self) -> str:
        """The preset of the runs."""
        return self.preset or self.scenario.preset

    @property
    def mode(self) -> Mode:
        """The kind of the study that makes the runs."""
        if self.scenario.throughput:
            return "throughput"
        return "weak" if self.scenario.batch.local_size is not None else "strong"


def rehearsed(scenario: Scenario) -> Scenario:
    """The scenario at the size of its rehearsal: the same rules, with smaller numbers and the preset ``smoke``."""
    small = scenario.rehearsal
    local = small.local_batch if scenario.batch.local_size is not None else None
    return replace(
        scenario, preset="smoke", recipe=small.settings, references=(),
        dataset=Dataset("simulated for the rehearsal", small.train_samples, small.validation_samples),
        stop=Stop(small.epochs, None if scenario.stop.target is None else small.target),
        batch=Batch(local, None if local is not None else small.global_batch, scenario.batch.accumulation),
        metric=replace(scenario.metric, epochs=small.metric_epochs if scenario.metric.epochs is not None else None),
        replicates=small.replicates, scales=(),
    )  # fmt: skip


def own_settings(entry: Entry) -> dict[str, str]:
    """What the campaign itself sets on top of the preset, as dotted settings."""
    scenario = entry.scenario
    fixed = {
        "train.precision": entry.category.precision[0],
        **{name: shown(value) for name, value in scenario.recipe.items()},
        "train.target": shown(scenario.stop.target), "train.max_epochs": str(scenario.stop.epochs),
    }  # fmt: skip
    if entry.category.division:
        fixed["submission.division"] = entry.category.division
    if scenario.batch.local_size is not None:
        fixed["train.local_batch_size"] = str(scenario.batch.local_size)
    return fixed


def base_config(entry: Entry) -> RunConfig:
    """The configuration of the campaign itself: its preset with its settings, without the user's."""
    return resolve(entry.application, entry.scenario.preset, None, own_settings(entry))


def file_settings(entry: Entry) -> dict[str, tuple[Path, Any]]:
    """The dotted settings of the user's files, each with the last file that names it and its value there."""
    return {name: (path, value) for path in entry.files for name, value in dotted(read_yaml(path)).items()}


def given_settings(entry: Entry) -> dict[str, tuple[str, str]]:
    """The user's settings, from files and command line: words for where each one is given, and its value as text."""
    in_files = {name: (f"{path}: {name}", shown(value)) for name, (path, value) in file_settings(entry).items()}
    return in_files | {name: (f"--{name}", value) for name, value in entry.settings.items()}


def run_settings(entry: Entry) -> dict[str, str]:
    """Dotted settings of the runs on top of ``own_preset`` and the user's files; the user's settings come last.

    A preset that the user chose keeps its own recipe, and a file its own values, as far as the rules allow that.
    """
    in_files = file_settings(entry)
    campaign_settings = {
        name: value for name, value in own_settings(entry).items()
        if name not in in_files and (entry.preset is None or name not in entry.scenario.recipe)
    }  # fmt: skip
    if "optim.name" in campaign_settings:  # it comes after the files, and would unset the options that they give
        options = {name: shown(value) for name, (_, value) in in_files.items() if name in OPTIONS}
        campaign_settings |= options
    return {**campaign_settings, **entry.settings}


def run_config(entry: Entry) -> RunConfig:
    """The configuration of the runs, except what depends on their size.

    Raises an ``InputError`` that names the rule, for a setting that the category forbids.
    """
    refuse_decided_settings(entry)
    config = resolve(entry.application, entry.own_preset, list(entry.files), run_settings(entry))
    refuse_what_cannot_count(entry, config)
    base = base_config(entry)
    given = {name: words for name, (words, _) in given_settings(entry).items()}
    check_category(entry.campaign, entry.scenario, entry.category, config, base, given)
    if config.train.accumulation > 1 and not entry.scenario.batch.accumulation:
        raise InputError(
            f"--train.accumulation {config.train.accumulation}: {entry.campaign.name} allows no accumulation "
            "(rule: gradient accumulation is 1); leave it out, and take as many accelerators as the batch needs"
        )
    return config


def refuse_decided_settings(entry: Entry) -> None:
    """Raise ``InputError`` for the seed, and for a batch that the rules decide, wherever they are given."""
    given = given_settings(entry)
    if "train.seed" in given:
        where, _ = given["train.seed"]
        raise InputError(f"{where} is for the campaign to draw, from the clock; leave it out")
    batch, name = entry.scenario.batch, entry.campaign.name
    where, local = given.get("train.local_batch_size", ("", None))
    if local is not None and batch.local_size is not None and local != str(batch.local_size):
        raise InputError(
            f"{where} {local}: {name} fixes the local batch at {batch.local_size} (rule: batch of "
            f"scenario {entry.scenario.name}); leave it out"
        )
    if local is not None and batch.local_size is None:
        raise InputError(
            f"{where} {local}: in scenario {entry.scenario.name} of {name} it follows from the global "
            "batch and the number of accelerators; leave it out, and change --nodes"
        )
    if entry.global_batch is not None and batch.global_size not in (None, entry.global_batch):
        raise InputError(
            f"--global-batch-size {entry.global_batch}: {name} fixes the global batch at {batch.global_size:,} (rule: "
            f"batch of scenario {entry.scenario.name}); leave it out"
        )
    if entry.global_batch is not None and batch.local_size is not None:
        raise InputError(
            f"--global-batch-size {entry.global_batch}: {name} fixes the local batch at {batch.local_size:,}, and the "
            "global one follows from the nodes; leave it out"
        )


def refuse_what_cannot_count(entry: Entry, config: RunConfig) -> None:
    """Raise ``InputError`` for simulated ranks or nodes, and for a limit of steps, unless the entry is a rehearsal."""
    settings = {
        "parallel.simulated_ranks": config.parallel.simulated_ranks, "train.max_steps": config.train.max_steps,
        "parallel.simulated_nodes": config.parallel.simulated_nodes,
    }  # fmt: skip
    for setting, value in settings.items():
        if value is not None and not entry.rehearsal:
            why = "the rules say when a run ends" if setting == "train.max_steps" else "its times are not of real nodes"
            raise InputError(
                f"--{setting} {value}: no run with it counts in {entry.campaign.name} ({why}); leave it out"
            )


def global_batch_of(entry: Entry, config: RunConfig) -> int | None:
    """The global batch of each run; ``None`` if the local one is fixed. Raises ``InputError`` if nothing gives one."""
    if entry.scenario.batch.local_size is not None:
        return None
    batch = entry.scenario.batch.global_size or entry.global_batch or config.optim.base_batch_size
    if batch is None:
        raise InputError(f"scenario {entry.scenario.name} leaves the batch to you; give --global-batch-size")
    return batch


def ladder(scenario: Scenario, nodes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of a scenario from those that a user names: N alone makes the whole ladder.

    Raises ``InputError`` for several sizes that are not on one ladder.
    """
    if not scenario.scales:
        return nodes
    if len(nodes) == 1:
        return tuple(nodes[0] * scale for scale in scenario.scales)
    bases = [nodes[0] // scale for scale in scenario.scales if nodes[0] % scale == 0]
    if any(set(nodes) <= {base * scale for scale in scenario.scales} for base in bases):
        return nodes
    words = ", ".join("N" if scale == 1 else f"{scale}N" for scale in scenario.scales)
    raise InputError(
        f"--nodes {','.join(map(str, nodes))}: scenario {scenario.name} asks for {words} nodes; give N alone, or some "
        "of its multiples"
    )
