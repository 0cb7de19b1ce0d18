"""The batch jobs of a scaling study: of one run, or of all instances of a repeat."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path

from hpcbench.application import find_application
from hpcbench.batch.job import Job, make_job
from hpcbench.batch.launchers import STEPS
from hpcbench.batch.machine import MEMORY_PATH
from hpcbench.batch.packed_runs import PackedRuns
from hpcbench.batch.script import asked_for
from hpcbench.batch.site import Site
from hpcbench.config.read_yaml import read_yaml
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import StagingConfig
from hpcbench.planning.job_fit import doctor_gib, settings_of_script, staging_nodes
from hpcbench.planning.staged_bytes import staged_bytes
from hpcbench.results.units import counted
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import (
    PlannedRun,
    local_batch_size,
    run_nodes,
    seed_of,
    tier_of,
    variant_settings,
)
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError


def job_of(study: Scaling, site: Site, run: PlannedRun, folder: Path) -> Job:
    """The job of one run. Raises ``InputError`` for what the site cannot give.

    On a site without a scheduler all nodes are simulated by ranks of this machine.
    """
    nodes = run_nodes(study, run)
    request = study.job_request(nodes)
    simulated = site.scheduler == "local"
    if simulated:
        request = replace(request, nodes=1, ranks_per_node=nodes * study.ranks_per_node)
    stages, path = storage(study, site, run)
    if path:
        request = replace(request, local_path=path)
    command = ("hpcbench",) if request.image else (sys.executable, "-m", "hpcbench")
    title = f"{study.mode} scaling, {run.name}: {study.application}, preset {study.preset},"
    job = make_job(site, request, folder, command, study_run(study, run).words, title, stages)
    job = replace(job, simulated_nodes=nodes) if simulated and nodes > 1 else job
    return replace(job, local_gib=needed_gib(study, run, job))


def shares_allocation(study: Scaling, site: Site) -> bool:
    """Whether the instances of a repeat are steps of one job, so that they start together; otherwise each is a job.

    Inside a container the site's launcher cannot be called.
    """
    steps = site.scheduler != "local" and site.launcher in STEPS
    return study.mode == "throughput" and steps and not study.job_request(1).image


def instances_job(study: Scaling, site: Site, group: Sequence[PlannedRun], folder: Path, keep: bool = False) -> Job:
    """The job of all instances of a repeat, in ``STUDY/jobs/NUMBER``, each on its own nodes."""
    one = job_of(study, site, group[0], folder)
    launchers = tuple(tuple(STEPS[site.launcher](one, site, number * one.nodes)) for number in range(len(group)))
    packed = PackedRuns(
        {run.name: study_run(study, run).words for run in group}, len(group), one.ranks, one.ranks * one.gpus_per_rank,
        keep, launchers=launchers, cores=one.cores_per_rank, further_words=tuple(asked_for(one).split()),
    )  # fmt: skip
    title = f"{study.mode} scaling, {counted(len(group), 'instance')} of {study.application}, preset {study.preset},"
    return replace(one, nodes=one.nodes * len(group), title=title, arguments=(), packed=packed)


def needed_gib(study: Scaling, run: PlannedRun, job: Job) -> float:
    """Storage in GiB that must be free on each node of the job."""
    if not job.stages:
        return 0.0
    settings = run_settings(study, run) | settings_of_script(job)
    settings.pop("train.seed")
    layout = staging_nodes(job, job.local_path)
    return counted_gib(study.application, study.preset, study.files, tuple(sorted(settings.items())), layout)


@lru_cache(maxsize=1024)
def counted_gib(
    name: str, preset: str, files: tuple[str, ...], settings: tuple[tuple[str, str], ...], layout: tuple[int, int, int]
) -> float:
    """See ``needed_gib``; the runs of a study often need the same, and listing a dataset takes long."""
    application = find_application(name)
    try:
        config = resolve(application, preset, [Path(file) for file in files], dict(settings))
        return doctor_gib(staged_bytes(application, config, *layout))
    except InputError:  # the run itself says what is wrong with its settings
        return 0.0


def storage(study: Scaling, site: Site, run: PlannedRun) -> tuple[bool, str]:
    """Whether the run stages, and the node-local folder if it is not the job's own."""
    tier = tier_of(run.point.variant)
    if tier is None:
        return study.stages, ""
    if tier == "shared":
        return False, ""
    return True, {"node": "", "memory": MEMORY_PATH}.get(tier, tier)


def study_run(study: Scaling, run: PlannedRun) -> StudyRun:
    """The run as ``hpcbench train`` makes it."""
    return StudyRun.of(run.name, study.application, study.preset, run_settings(study, run), study.files)


def run_settings(study: Scaling, run: PlannedRun) -> dict[str, str]:
    """Dotted settings of one run; what the study itself decides comes last.

    If the tier is that of the dataset itself, nothing is staged: staging settings are left out, those of files undone.
    """
    decided = {
        "train.seed": str(seed_of(study, run)),
        "train.local_batch_size": str(local_batch_size(study, run_nodes(study, run))),
        "train.accumulation": str(study.accumulation),
        "measure.probe": "true",
        "train.baselines": "false",
    }
    if study.steps is not None:
        decided |= {"train.max_steps": str(study.steps), "train.target": "null"}
    given = {**study.settings, **variant_settings(run.point.variant)}
    if tier_of(run.point.variant) == "shared":
        given = {key: value for key, value in given.items() if not key.startswith("staging.")}
        given |= without_staging(study.files)
    return {"train.page": "false", **given, **decided}


def without_staging(files: Sequence[str]) -> dict[str, str]:
    """The defaults of the staging settings that YAML files have; the run itself says if a file is gone."""
    set_there = [read_yaml(Path(path)).get("staging") for path in files if Path(path).is_file()]
    names = {name for section in set_there if isinstance(section, dict) for name in section}
    return {
        f"staging.{field.name}": str(field.default).lower() for field in fields(StagingConfig) if field.name in names
    }
