"""From the command line of a convergence study to its definition: everything is checked before a run starts."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

from hpcbench.application import Application
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.site import find_site
from hpcbench.config.optimizers import optimizer_names, own_settings
from hpcbench.config.resolve import known_keys, resolve
from hpcbench.config.schema import RunConfig
from hpcbench.config.validate import validate_run
from hpcbench.study.definition import MOST_WIDENINGS, SEARCH_SEEDS, Borrow, Placement, Study, asked_for
from hpcbench.study.packing import packed_job, packing_of
from hpcbench.study.plan import PlannedRun, geometry, points, possible_multipliers, study_run
from hpcbench.study.preset_values import preset_values, study_config
from hpcbench.study.rates import Rate, check_multiples, parse_rates, parse_rules, parse_search, positive_int
from hpcbench.suggest import suggest
from staging.errors import InputError

TAKEN = {
    "optim.name": "--optimizers", "optim.lr": "--lr", "optim.scaling": "--lr-rule", "optim.base_batch_size": "--lr",
    "train.seed": "--seeds", "train.accumulation": "--batch-sizes", "parallel.simulated_ranks": "--batch-sizes",
    "parallel.simulated_nodes": "--nodes", "parallel.devices": "--nodes", "staging.placement": "--placements",
    "staging.reshuffle": "--placements", "staging.contiguous": "--placements", "staging.destination": "--placements",
}  # fmt: skip
"""Settings that a study sets for its runs, and the option that decides each."""


@dataclass(frozen=True)
class Request:
    """The options of the command as they were given."""

    preset: str
    batch_sizes: str
    optimizers: str
    seeds: int
    placements: str = "replicate"
    nodes: int = 4
    lr: str = ""
    lr_rule: str = "linear"
    lr_search: str = "1"
    lr_search_seeds: int | None = None
    """If unset, this and the next are those of the study in the folder, or ``SEARCH_SEEDS`` and ``MOST_WIDENINGS``."""
    lr_search_widen: int | None = None
    borrow: str = ""
    optimizer_settings: Sequence[str] = ()
    """``OPTIMIZER:KEY=VALUE`` entries."""
    files: Sequence[Path] = ()
    samples_per_s_per_rank: float | None = None
    parallel_efficiency: float = 1.0
    command: str = ""
    site: str = "local"
    job: JobRequest = field(default_factory=JobRequest)
    runs_per_job: int | None = None


def define(application: Application, request: Request, dotted: Mapping[str, str], before: Study | None = None) -> Study:
    """The requested study. Raises ``InputError`` in one line for whatever cannot run.

    ``before`` is the study in its folder, whose search continues as it began unless the request says otherwise.
    """
    for key in dotted:
        refuse_taken(key, f"--{key}")
    config = resolve(application, request.preset, list(request.files), beside_the_recipe(dotted))
    batches = tuple(sorted({positive_int("--batch-sizes", part) for part in words(request.batch_sizes)}))
    optimizers, only = parse_optimizers(request.optimizers, batches)
    placements = names("--placements", request.placements, get_args(Placement))
    if request.seeds < 1:
        raise InputError(f"--seeds ({request.seeds}) must be at least 1")
    if request.samples_per_s_per_rank is not None and not request.samples_per_s_per_rank > 0:
        raise InputError(f"--samples-per-s-per-rank ({request.samples_per_s_per_rank}) must be above 0")
    if not 0 < request.parallel_efficiency <= 1:
        raise InputError(f"--parallel-efficiency ({request.parallel_efficiency}) must be above 0 and at most 1")
    if request.nodes < 2 and placements != ("replicate",):
        raise InputError(f"--nodes ({request.nodes}) must be at least 2 if samples are sharded over nodes")
    if config.train.target is None:
        raise InputError(f"preset '{request.preset}' has no target, so no run could reach it; set --train.target")
    borrow = parse_borrow(request.borrow, batches, application)
    preset_rate = {config.optim.name: own_rate(config)}
    lr_search = parse_search(request.lr_search)
    seeds, widen = search_effort(request, lr_search, before)
    check_multiples(lr_search, widen)
    study = Study(
        application=application.name,
        preset=request.preset,
        batch_sizes=batches,
        optimizers=optimizers,
        seeds=request.seeds,
        local_batch_size=config.train.local_batch_size,
        rates=parse_rates(request.lr, optimizers, preset_rate, parse_rules(request.lr_rule, optimizers)),
        lr_search=lr_search,
        lr_search_seeds=seeds,
        lr_search_widen=widen,
        own_seeds=True,
        only=only,
        placements=placements,
        nodes=request.nodes,
        borrow=borrow,
        settings={**file_settings(application, request), **dotted},
        own_settings=settings_by_optimizer(
            config, optimizers, dotted, parse_own(request.optimizer_settings, optimizers)
        ),
        recipes={
            borrowed.source: recipe(application, borrowed.source) for borrowed in borrow if borrowed.from_batch is None
        },
        samples_per_s_per_rank=request.samples_per_s_per_rank,
        parallel_efficiency=request.parallel_efficiency,
        preset_values=preset_values(application, request.preset),
        commands=(request.command,) if request.command else (),
        site=request.site,
        request=asked_for(request.job),
        runs_per_job=request.runs_per_job,
    )
    check(application, study)
    check_site(study)
    return study


def beside_the_recipe(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings without those of optimizer and schedule, which may go with another optimizer than the preset's."""
    return {key: value for key, value in settings.items() if not key.startswith(("optim.", "schedule."))}


def words(text: str) -> list[str]:
    """The entries of a comma-separated list. Raises ``InputError`` if there is none."""
    entries = [part.strip() for part in text.split(",") if part.strip()]
    if not entries:
        raise InputError("an option that takes a comma-separated list got an empty one; see --help")
    return entries


def names(option: str, text: str, known: Sequence[str]) -> Any:
    """The entries of a list of known names, once each. Raises ``InputError`` for an unknown one."""
    for name in words(text):
        if name not in known:
            raise InputError(f"{option}: unknown '{name}'; {suggest(name, list(known))}")
    return tuple(dict.fromkeys(words(text)))


def parse_optimizers(text: str, batches: Sequence[int]) -> tuple[tuple[str, ...], dict[str, tuple[int, ...]]]:
    """The optimizers, and the batches of those that do not have all: ``sgd,lars,larc@32,larc@128``."""
    batches_by_name: dict[str, set[int]] = {}
    everywhere = set()
    for entry in words(text):
        name, at, batch = entry.partition("@")
        names("--optimizers", name, optimizer_names())
        batches_by_name.setdefault(name, set())
        if not at:
            everywhere.add(name)
        elif (number := positive_int("--optimizers", batch)) in batches:
            batches_by_name[name].add(number)
        else:
            raise InputError(f"--optimizers: '{entry}' has a batch that is not in --batch-sizes; add it there")
    only = {name: tuple(sorted(of_name)) for name, of_name in batches_by_name.items() if name not in everywhere}
    for batch_size in batches:
        if not everywhere and not any(batch_size in of_name for of_name in only.values()):
            raise InputError(f"--batch-sizes: {batch_size} has no optimizer; leave it out, or name one without @BATCH")
    return tuple(batches_by_name), only


def search_effort(request: Request, multiples: Sequence[float], before: Study | None) -> tuple[int, int]:
    """Seeds and widenings of the search."""
    asked = {"--lr-search-seeds": request.lr_search_seeds, "--lr-search-widen": request.lr_search_widen}
    goes_on = before is not None and len(before.lr_search) > 1
    for option, value in asked.items():
        if value is not None and len(multiples) == 1 and not goes_on:
            raise InputError(f"{option} ({value}) is for a search; give --lr-search two multiples or more")
    usual = (before.lr_search_seeds, before.lr_search_widen) if before and goes_on else (SEARCH_SEEDS, MOST_WIDENINGS)
    seeds, widen = (default if value is None else value for value, default in zip(asked.values(), usual, strict=True))
    return seeds, widen


def refuse_taken(key: str, given: str) -> None:
    """Raise ``InputError`` for a setting that the study itself sets."""
    if key in TAKEN:
        raise InputError(f"{given}: a study sets {key} itself; see {TAKEN[key]}")


def own_rate(config: RunConfig) -> Rate:
    """The rate of the preset, for its own optimizer."""
    batch = config.optim.base_batch_size or config.train.local_batch_size * config.train.accumulation
    return Rate(config.optim.lr, batch)


def file_settings(application: Application, request: Request) -> dict[str, str]:
    """What the settings files change, as dotted settings, so that the definition needs no other file."""
    if not request.files:
        return {}
    preset = resolve(application, request.preset)
    config = resolve(application, request.preset, list(request.files))
    before, after = flat(preset), flat(config)
    changed = {key: value for key, value in after.items() if value != before[key]}
    for key in changed:
        refuse_taken(key, f"--config {request.files[0]}")
    return changed


def settings_by_optimizer(
    config: RunConfig,
    optimizers: Sequence[str],
    dotted: Mapping[str, str],
    with_settings: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """The settings specific to each optimizer; what the preset sets for its own optimizer is unset for others."""
    preset = [f"optim.{name}" for name in own_settings(config.optim) if getattr(config.optim, name) is not None]
    unset = {key: "null" for key in preset if key not in dotted}
    settings_by_name = {
        name: {**({} if name == config.optim.name else unset), **with_settings.get(name, {})} for name in optimizers
    }
    return {name: settings for name, settings in settings_by_name.items() if settings}


def parse_own(entries: Sequence[str], optimizers: Sequence[str]) -> dict[str, dict[str, str]]:
    """Settings of one optimizer's runs, from ``lars:optim.weight_decay=0.0001``."""
    settings_by_name: dict[str, dict[str, str]] = {}
    for entry in entries:
        setting, equals, value = entry.partition("=")
        name, colon, key = setting.partition(":")
        if not equals or not colon or "." not in key:
            raise InputError(f"--with: '{entry}' is not OPTIMIZER:KEY=VALUE, such as lars:optim.weight_decay=0.0001")
        if name not in optimizers:
            raise InputError(f"--with: '{name}' is not in --optimizers; {suggest(name, list(optimizers))}")
        refuse_taken(key, f"--with {entry}")
        settings_by_name.setdefault(name, {})[key] = value
    return settings_by_name


def parse_borrow(text: str, batches: Sequence[int], application: Application) -> tuple[Borrow, ...]:
    """Recipes used at batches for which they were not made, from ``32:512,node:512``."""
    borrows = []
    for entry in (part.strip() for part in text.split(",") if part.strip()):
        source, colon, batch = entry.rpartition(":")
        if not colon or not source:
            raise InputError(f"--borrow: '{entry}' is not FROM:BATCH, such as 32:512 or node:512")
        borrow = Borrow(source, positive_int("--borrow", batch))
        if borrow.from_batch is not None and borrow.from_batch not in batches:
            raise InputError(f"--borrow: {source} is not in --batch-sizes, so no rate is chosen there; add it")
        if borrow.from_batch == borrow.batch:
            raise InputError(f"--borrow: '{entry}' borrows a recipe from itself; name two batches")
        if borrow.from_batch is None and source not in application.presets():
            hint = suggest(source, list(application.presets()))
            raise InputError(f"--borrow: '{source}' is neither a batch nor a preset of {application.name}; {hint}")
        borrows.append(borrow)
    return tuple(dict.fromkeys(borrows))


def recipe(application: Application, preset: str) -> dict[str, str]:
    """Every optimizer and schedule setting of another preset."""
    settings = flat(resolve(application, preset))
    return {key: value for key, value in settings.items() if key.startswith(("optim.", "schedule."))}


def flat(config: RunConfig) -> dict[str, str]:
    """Every dotted key with its value, as on a command line."""
    values = {key: attrgetter(key)(config) for key, _ in known_keys(type(config))}
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def check_site(study: Study) -> None:
    """Raise ``InputError`` if the site cannot make the runs, or has no scheduler for the job options that are given."""
    site = find_site(study.site)
    if site.scheduler != "local":
        some = study_run(study, PlannedRun(points(study)[0], study.lr_search[0], 1))
        packed_job(study, site, packing_of(study, site), [some], Path("study/jobs/0001"), keep=False)
    elif study.runs_per_job is not None or study.request:
        given = "--runs-per-job" if study.runs_per_job is not None else f"--{next(iter(study.request))}"
        raise InputError(f"{given.replace('_', '-')} is for jobs; name a --site, or leave it out")


def check(application: Application, study: Study) -> None:
    """Raise ``InputError`` if a run of the study could not start."""
    resolved: dict[tuple[str, str, str], RunConfig] = {}
    for point in points(study):
        geometry(study, point)
        kind = (point.optimizer, point.placement, point.source if point.source in study.recipes else "")
        tried = possible_multipliers(study)
        for multiplier in dict.fromkeys((study.lr_search[0], study.lr_search[-1], tried[0], tried[-1])):
            wanted = study_run(study, PlannedRun(point, multiplier, 1))
            if kind not in resolved:
                # Resolving takes a third of a second; the rows of a kind differ in a few values only.
                resolved[kind] = study_config(study, wanted.settings)
            config = copy.deepcopy(resolved[kind])
            if not kind[2]:
                config.optim.lr = float(wanted.settings["optim.lr"])
                config.optim.base_batch_size = point.batch
            config.train.local_batch_size = int(wanted.settings["train.local_batch_size"])
            config.parallel.simulated_ranks = geometry(study, point)[0]
            try:
                validate_run(config)
                config.validate()
            except InputError as error:
                if multiplier in study.lr_search:
                    raise
                raise InputError(
                    f"{error}; the search may come to {multiplier:g} times the rate of batch {point.batch}, so lower "
                    f"--lr-search-widen ({study.lr_search_widen}) or change --lr-search"
                ) from None
