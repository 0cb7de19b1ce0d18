"""Checks whether the runs that a job of a convergence study packs fit the memory of its node, and what they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.batch.job import Job
from hpcbench.batch.site import Site
from hpcbench.config.schema import RunConfig
from hpcbench.optim.recipes import RECIPES
from hpcbench.planning.fits import Finding, judge_memory
from hpcbench.planning.job_fit import largest_batch, rank_room
from hpcbench.planning.rank_memory import rank_memory
from hpcbench.results.tables import wrapped
from hpcbench.study.definition import Study
from hpcbench.study.packing import Packing, packed_job
from hpcbench.study.plan import PlannedRun, Point, study_run
from hpcbench.study.preset_values import study_config
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError


def check_memory(study: Study, site: Site, packing: Packing) -> None:
    """Raise ``InputError`` in one line if a process of a run has less memory than it needs."""
    finding = memory_of_process(study, site, packing)
    if finding.level == "refuse":
        raise InputError(finding.text)


def fit_lines(study: Study, site: Site, packing: Packing) -> list[str]:
    """Recipe, staging and memory for people, one line each, with a warning if memory is close to its limit."""
    finding = memory_of_process(study, site, packing)
    warning = "warning: " if finding.level == "warn" else ""
    lines = [
        f"recipe   {recipes(study)}",
        "staging  none; the dataset is read where it lies",
        f"memory   {warning}{finding.text}",
    ]
    return [wrapped(line, 9) for line in lines]


def recipes(study: Study) -> str:
    """Which batches of the study have a published recipe."""
    published = {
        recipe.global_batch_size: recipe.preset for recipe in RECIPES if recipe.application == study.application
    }
    named = [f"{batch:,} ({published[batch]})" for batch in study.batch_sizes if batch in published]
    return f"published for batch {', '.join(named)}" if named else "none published for these batches"


def memory_of_process(study: Study, site: Site, packing: Packing) -> Finding:
    """The memory that a process of a run needs with the optimizer that needs most, against what it has."""
    application = find_application(study.application)
    configs = [config_of(study, packing, name) for name in study.optimizers]
    needs = [rank_memory(application, config, 1, packing.processes) for config in configs]
    known = [(need, config) for need, config in zip(needs, configs, strict=True) if need is not None]
    if not known:
        return Finding("ok", f"unknown, since {application.name} has no module `shapes`")
    need, config = max(known, key=lambda pair: pair[0])
    room = rank_room(node_of_runs(study, site, packing), site)
    local = config.train.local_batch_size
    too_much = room.limit is not None and need > room.limit
    one_run = replace(node_of_runs(study, site, packing), ranks_per_node=packing.processes)
    smaller = largest_batch(application, config, one_run, room.limit) if too_much and room.limit is not None else None
    fewer = [] if packing.gpus or packing.side_by_side == 1 else [f"--runs-per-job below {packing.side_by_side}"]
    return judge_memory(need, room, local, smaller, fewer, processor=not packing.gpus)


def config_of(study: Study, packing: Packing, optimizer: str) -> RunConfig:
    """The configuration of the largest batch with an optimizer."""
    run = study_run(study, PlannedRun(Point(study.batches(optimizer)[-1], optimizer), study.lr_search[0], 1))
    place = {} if packing.gpus else {"parallel.accelerator": "cpu"}
    return study_config(study, run.settings | place)


def node_of_runs(study: Study, site: Site, packing: Packing) -> Job:
    """The packed job as if all processes of the runs side by side were its ranks."""
    runs: Sequence[StudyRun] = [StudyRun(f"run {number}", ("",) * 3) for number in range(packing.side_by_side)]
    job = packed_job(study, site, packing, runs, Path("jobs/0001"), keep=False)
    gpus_per_process = packing.gpus // packing.processes
    return replace(job, ranks_per_node=packing.side_by_side * packing.processes, gpus_per_rank=gpus_per_process)
