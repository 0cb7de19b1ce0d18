"""How a convergence study shares a site's nodes among its runs, and the jobs that result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcbench.batch.job import Job, make_job
from hpcbench.batch.packed_runs import PackedRuns
from hpcbench.batch.site import Site
from hpcbench.results.units import counted
from hpcbench.study.definition import Study
from hpcbench.study.plan import largest_round, processes_per_run
from hpcbench.study.run_slots import USUAL_CORES
from hpcbench.study.study_run import StudyRun
from staging.errors import InputError

ON_PROCESSORS = "--parallel.accelerator=cpu"


@dataclass(frozen=True)
class Packing:
    """A node's share for each run of a study."""

    runs_per_job: int
    side_by_side: int
    """Runs at once on the node."""
    processes: int
    """Processes of each run."""
    cores: int
    """Physical cores of each run."""
    gpus: int
    """GPUs of each run."""


def packing_of(study: Study, site: Site) -> Packing:
    """What a node of the site has for each run. Raises ``InputError`` for a run that needs more than a node."""
    processes, runs_per_job, request = processes_per_run(study), study.runs_per_job, study.job_request()
    gpus = processes * gpus_per_process(site, request.gpus_per_rank)
    least = processes * (request.cores_per_rank or 1)
    node = site.node
    if node.cores is None and request.cores_per_rank is None:
        raise InputError(f"site {site.name} does not know the cores of its nodes; give --cores-per-rank")
    if gpus > node.gpus and (node.gpus or node.cores is not None):
        raise too_large(site, processes, counted(gpus, "GPU"), node.gpus, "--gpus-per-rank")
    if node.cores is not None and least > node.cores:
        raise too_large(site, processes, counted(least, "core"), node.cores, "--cores-per-rank")
    fits = places_of_node(site, gpus, least if request.cores_per_rank else max(USUAL_CORES, processes), runs_per_job)
    fits = min(fits, largest_round(study), *([node.cores // least] if node.cores is not None else []))
    side_by_side = max(1, fits if runs_per_job is None else min(fits, runs_per_job))
    cores = least if request.cores_per_rank or node.cores is None else node.cores // side_by_side
    return Packing(runs_per_job or side_by_side, side_by_side, processes, cores, gpus)


def too_large(site: Site, processes: int, needs: str, has: int, option: str) -> InputError:
    """The error for a run that needs more than a node."""
    return InputError(
        f"a run of {counted(processes, 'process', 'processes')} needs {needs}, more than the {has} of a node of "
        f"{site.name}, and a convergence study makes each run on one node; lower parallel.spatial or {option}"
    )


def gpus_per_process(site: Site, asked: int | None) -> int:
    """GPUs of a process: what is asked for; otherwise one if the site has GPUs, and none if it has not."""
    return asked if asked is not None else 1 if site.node.gpus else 0


def places_of_node(site: Site, gpus: int, cores: int, runs_per_job: int | None) -> int:
    """Number of runs that fit side by side on a node, by its GPUs if they use any, otherwise by its cores."""
    if gpus and site.node.gpus:
        return site.node.gpus // gpus
    if site.node.cores is not None:
        return max(1, site.node.cores // cores)
    return runs_per_job or 1


def packed_job(study: Study, site: Site, packing: Packing, runs: Sequence[StudyRun], folder: Path, keep: bool) -> Job:
    """The job that makes these runs. Raises ``InputError`` for what the site cannot give."""
    side_by_side = min(packing.side_by_side, len(runs))
    request = replace(
        study.job_request(), nodes=1, ranks_per_node=1, cores_per_rank=side_by_side * packing.cores,
        gpus_per_rank=side_by_side * packing.gpus,
    )  # fmt: skip
    command = ("hpcbench",) if request.image else (sys.executable, "-m", "hpcbench")
    title = f"convergence study, {counted(len(runs), 'run')} of {study.application}, preset {study.preset},"
    job = make_job(site, request, folder, command, (), title, stages=False)
    words = {run.name: (run if packing.gpus else on_processors(run)).words for run in runs}
    return replace(job, packed=PackedRuns(words, side_by_side, packing.processes, packing.gpus, keep))


def on_processors(run: StudyRun) -> StudyRun:
    """The run without the accelerators that its node may have but its job has not asked for."""
    return replace(run, words=(*run.words[:3], ON_PROCESSORS, *run.words[3:]))


def unbound(site: Site) -> Site:
    """The site with a launcher that gives the job's one process all cores and accelerators; it divides them itself."""
    return replace(site, gpu_bind="", cpu_bind="")
