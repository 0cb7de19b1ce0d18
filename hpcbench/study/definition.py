"""The definition of a convergence study: the axes of its matrix, its rates, and the settings that all runs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from hpcbench.batch.job_request import JobRequest
from hpcbench.config.bounds import within
from hpcbench.config.json_record import record
from hpcbench.config.schema import MOST_SAMPLES
from hpcbench.study.preset_values import compare_presets
from hpcbench.study.rates import Rate, check_multiples
from staging.errors import DataError, InputError
from staging.number_options import MOST_NODES, MOST_PER_NODE

T = TypeVar("T")
Placement = Literal["replicate", "shard", "shard+reshuffle", "shard+contiguous"]
KIND = "convergence"
ADVICE = "restore it or give another folder"
MOST_SEEDS = 10_000
"""The seeds of a study are 1, 2, ... up to this at most; the runs that choose rates use 0 and the seeds beyond."""
SEARCH_SEEDS = 2
"""Seeds of a search, unless the command sets them."""
MOST_WIDENINGS = 2
"""How often a search may try further multiples: the most that a command can set, and the default."""
GROWS = ("batch_sizes", "optimizers", "placements", "lr_search", "borrow")
"""Fields to which later commands may add in the same folder. ``seeds``, the seeds and widenings of the search, and
``rates``, by those of new optimizers, may grow, too."""
FREE = ("parallel.threads", "parallel.timeout_s", "data.workers", "train.checkpoint_every", "train.keep_checkpoints",
        "train.baselines")  # fmt: skip
"""Settings that do not affect any result."""


@dataclass(frozen=True)
class Borrow:
    """A recipe used at ``batch``; ``source`` is the batch size that its rate is from, or the preset that it is from."""

    source: str
    batch: int

    @property
    def from_batch(self) -> int | None:
        """The batch size that the rate comes from."""
        return int(self.source) if self.source.isdigit() else None


@dataclass(frozen=True)
class Study:
    """The definition of a convergence study, as ``study.json`` holds it."""

    application: str
    preset: str
    batch_sizes: tuple[int, ...] = field(metadata=within(1, MOST_SAMPLES))
    optimizers: tuple[str, ...]
    seeds: int = field(metadata=within(1, MOST_SEEDS))
    local_batch_size: int = field(metadata=within(1, MOST_SAMPLES))
    """Samples of a simulated rank; a batch smaller than this lowers it."""
    rates: Mapping[str, Rate]
    lr_search: tuple[float, ...] = (1.0,)
    """Multipliers of the rate that the rule gives."""
    lr_search_seeds: int = field(default=1, metadata=within(1, 100))
    """Seeds by which the best of them are compared. Defaults, here and below, are what an older ``study.json`` had."""
    lr_search_widen: int = field(default=0, metadata=within(0, MOST_WIDENINGS))
    """How often the search of an optimizer may try further multipliers."""
    own_seeds: bool = False
    """Whether the runs of each batch size have seeds of their own, so that they are independent of those of others."""
    only: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The batch sizes of the optimizers that do not have all of them."""
    placements: tuple[str, ...] = ("replicate",)
    nodes: int = field(default=4, metadata=within(1, MOST_NODES))
    """Nodes over which samples are sharded."""
    borrow: tuple[Borrow, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted settings of all runs."""
    own_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dotted settings of one optimizer's runs."""
    recipes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The settings that make up the recipe of each borrowed preset."""
    samples_per_s_per_rank: float | None = None
    """Speed of the machine for which times to solution are given; unset takes that of the runs."""
    parallel_efficiency: float = 1.0
    """Fraction of its ranks' speeds that remains when they work together."""
    preset_values: Mapping[str, Any] = field(default_factory=dict)
    """What the preset said when the study began, by dotted names (``preset_values.preset_values``)."""
    commands: tuple[str, ...] = ()
    """The commands that made the study, as they were given."""
    site: str = "local"
    """Name or file of the profile of the site whose jobs make the runs that are left."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What these jobs ask for: the fields of ``JobRequest`` that are not the default."""
    runs_per_job: int | None = field(default=None, metadata=within(1, MOST_PER_NODE))
    """Runs that a job packs; unset takes as many as fit side by side on a node."""

    def batches(self, optimizer: str) -> tuple[int, ...]:
        """The batch sizes of an optimizer's rows."""
        return self.only.get(optimizer, self.batch_sizes)

    def job_request(self) -> JobRequest:
        """What a job asks for, apart from nodes, ranks, cores and accelerators."""
        return job_request(self.request)

    def as_dict(self) -> dict[str, Any]:
        """The definition as a JSON object."""
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], path: Path) -> Study:
        """Read a definition back. Raises ``DataError`` for anything else; ``path`` only names it in the message."""
        if values.get("kind") != KIND:
            raise DataError(path, f"is a study of the kind '{values.get('kind')}', not '{KIND}'", "give another folder")
        study = record(cls, values, path, ADVICE)
        record(JobRequest, study.request, path, ADVICE)
        lists = {name: getattr(study, name) for name in ("batch_sizes", "optimizers", "placements", "lr_search")}
        check_lists({**lists, **study.only}, path)
        lacking = [name for name in study.optimizers if name not in study.rates]
        if lacking:
            raise DataError(path, f"is damaged (rates.{lacking[0]} is missing)", ADVICE)
        return study


def check_lists(lists: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Raise ``DataError`` for a list of a definition that has no entry."""
    for name, entries in lists.items():
        if not entries:
            raise DataError(path, f"is damaged ({name} is empty)", ADVICE)


def asked_for(request: JobRequest) -> dict[str, Any]:
    """The fields of a request that are not the default, as a definition holds them, without nodes and ranks."""
    plain = JobRequest()
    return {
        option.name: getattr(request, option.name)
        for option in fields(JobRequest)
        if option.name not in ("nodes", "ranks_per_node")
        and getattr(request, option.name) != getattr(plain, option.name)
    }


def job_request(asked: Mapping[str, Any]) -> JobRequest:
    """The request that a definition holds; unknown fields, from another version, are left out."""
    known = {option.name for option in fields(JobRequest)}
    values = {name: value for name, value in asked.items() if name in known}
    if "modules" in values:
        values["modules"] = tuple(values["modules"])
    return JobRequest(**values)


def grow(old: Study, new: Study, folder: Path) -> Study:
    """The study that has the runs of both. Raises ``InputError`` if they cannot be compared."""
    for name, before, now in differences(old, new):
        raise InputError(
            f"{folder} holds another study: its {name} is {before}, this one's {now}; give another --study-dir"
        )
    both: dict[str, Any] = {name: union(getattr(old, name), getattr(new, name)) for name in GROWS}
    both["batch_sizes"], both["lr_search"] = tuple(sorted(both["batch_sizes"])), tuple(sorted(both["lr_search"]))
    searching = [study for study in (old, new) if len(study.lr_search) > 1] or [new]
    widenings = max(study.lr_search_widen for study in searching)
    if both["lr_search"] != old.lr_search or widenings != old.lr_search_widen:
        check_multiples(both["lr_search"], widenings)
    return replace(
        new,
        **both,
        lr_search_seeds=max(study.lr_search_seeds for study in searching),
        lr_search_widen=widenings,
        own_seeds=old.own_seeds,
        only=restrictions(old, new),
        nodes=old.nodes if shards(old) else new.nodes,
        seeds=max(old.seeds, new.seeds),
        rates={**old.rates, **new.rates},
        own_settings={**old.own_settings, **new.own_settings},
        recipes={**old.recipes, **new.recipes},
        samples_per_s_per_rank=new.samples_per_s_per_rank or old.samples_per_s_per_rank,
        commands=union(old.commands, new.commands),
        preset_values=old.preset_values,
    )


def restrictions(old: Study, new: Study) -> dict[str, tuple[int, ...]]:
    """The batches of restricted optimizers: those of both studies, or all if either has the optimizer unrestricted."""
    names = union(old.optimizers, new.optimizers)
    having = {name: [study for study in (old, new) if name in study.optimizers] for name in names}
    return {
        name: tuple(sorted({batch for study in studies for batch in study.only[name]}))
        for name, studies in having.items()
        if all(name in study.only for study in studies)
    }


def differences(old: Study, new: Study) -> list[tuple[str, Any, Any]]:
    """What decides the results of runs that both have, but differs: name, old and new value."""
    compared: list[tuple[str, Any, Any]] = [
        (name.replace("_", " "), getattr(old, name), getattr(new, name))
        for name in ("application", "preset", "local_batch_size")
    ]
    if shards(old) and shards(new):
        compared.append(("number of nodes", old.nodes, new.nodes))
    compared += [
        (f"preset's {name}", *values) for name, *values in compare_presets(old.preset_values, new.preset_values)
    ]
    compared += compare_settings(old.settings, new.settings)
    for name in set(old.optimizers) & set(new.optimizers):
        compared.append((f"rate of {name}", old.rates[name].words(), new.rates[name].words()))
        compared += compare_settings(old.own_settings.get(name, {}), new.own_settings.get(name, {}), f"{name}'s ")
    for name in set(old.recipes) & set(new.recipes):
        compared += compare_settings(old.recipes[name], new.recipes[name], f"preset {name}'s ")
    return [difference for difference in compared if difference[1] != difference[2]]


def shards(study: Study) -> bool:
    """Whether some rows share their samples among nodes."""
    return any(placement != "replicate" for placement in study.placements)


def compare_settings(old: Mapping[str, str], new: Mapping[str, str], whose: str = "") -> list[tuple[str, Any, Any]]:
    """Every setting of either study that affects a result; the dataset's path may be written differently."""
    keys = sorted(key for key in {**old, **new} if key not in FREE)

    def value(settings: Mapping[str, str], key: str) -> str:
        text = settings.get(key, "the preset's")
        return str(Path(text).resolve()) if key == "data.root" else text

    return [(f"{whose}{key}", value(old, key), value(new, key)) for key in keys]


def union(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    """The entries of both in their order, once each."""
    return tuple(dict.fromkeys((*first, *second)))
