"""The batch job of a run of a scaling study."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from hpcbench.batch.job import Job, make_job
from hpcbench.batch.site import Site
from hpcbench.study.scaling.definition import MEMORY, Scaling
from hpcbench.study.scaling.ladder import (
    PlannedRun,
    local_batch_size,
    run_nodes,
    seed_of,
    tier_of,
    variant_settings,
)


def job_of(study: Scaling, site: Site, run: PlannedRun, folder: Path) -> Job:
    """The job. Raises ``InputError`` for what the site cannot give.

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
    job = make_job(site, request, folder, command, train_words(study, run), title, stages)
    return replace(job, simulated_nodes=nodes) if simulated and nodes > 1 else job


def storage(study: Scaling, site: Site, run: PlannedRun) -> tuple[bool, str]:
    """Whether the run stages, and the node-local folder where it is not the job's own."""
    tier = tier_of(run.point.variant)
    if tier is None:
        return study.stages, ""
    if tier == "shared":
        return False, ""
    return True, {"node": "", "memory": MEMORY}.get(tier, tier)


def train_words(study: Scaling, run: PlannedRun) -> tuple[str, ...]:
    """The words after ``hpcbench train``, run folder and node-local storage apart."""
    words = [study.application, "--preset", study.preset]
    for path in study.files:
        words += ["--config", path]
    return (*words, *(f"--{key}={value}" for key, value in run_settings(study, run).items()))


def run_settings(study: Scaling, run: PlannedRun) -> dict[str, str]:
    """Dotted settings of one run; what the study itself decides comes last."""
    own = {
        "train.seed": str(seed_of(study, run)),
        "train.local_batch_size": str(local_batch_size(study, run_nodes(study, run))),
        "train.accumulation": str(study.accumulation),
        "measure.probe": "true",
        "train.baselines": "false",
    }
    if study.steps is not None:
        own |= {"train.max_steps": str(study.steps), "train.target": "null"}
    return {**study.settings, **variant_settings(run.point.variant), **own}
