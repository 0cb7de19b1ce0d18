"""From a user's request to the definition of a scaling study, complete and checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcbench.application import Application, find_application
from hpcbench.batch.job import at_least, ranks_per_node
from hpcbench.batch.job_request import JobRequest
from hpcbench.batch.site import Site, find_site
from hpcbench.config.read_yaml import read_yaml
from hpcbench.config.resolve import known_keys, resolve
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.mesh_shape import spatial_sizes
from hpcbench.study.definition import asked_for
from hpcbench.study.preset_values import preset_values
from hpcbench.study.scaling.definition import TIER, TIERS, Scaling
from hpcbench.study.scaling.fits import check_fits, run_config
from hpcbench.study.scaling.jobs import job_of
from hpcbench.study.scaling.point_results import Mode
from hpcbench.study.scaling.run_matrix import (
    PlannedRun,
    Variant,
    all_runs,
    axes,
    check_seeds,
    checked,
    data_parallel_size,
    groups,
    local_batch_size,
    nodes_list,
    run_nodes,
    short,
)
from staging.cores import cores_allowed
from staging.errors import InputError
from staging.units import counted

DECIDED = ("train.seed", "train.max_steps", "parallel.devices", "parallel.simulated_nodes",
           "parallel.simulated_ranks", "staging.destination", "measure.probe", "train.baselines")  # fmt: skip
"""Settings that the study itself decides."""
OF_BATCH = ("train.local_batch_size", "train.accumulation", "parallel.spatial")
"""Settings that decide the batch of a point, and are the same throughout a study."""
INSTEAD = {
    "train.seed": "--seed", "train.max_steps": "--steps", "staging.destination": "--vary tier=DIR or --local-path",
    "parallel.devices": "--nodes and --ranks-per-node", "parallel.simulated_nodes": "--nodes",
}  # fmt: skip


@dataclass(frozen=True)
class ScalingRequest:
    """The options of a command."""

    mode: Mode
    preset: str
    site: str
    nodes: str
    request: JobRequest
    repeats: int = 3
    steps: int | None = None
    global_batch_size: int | None = None
    instance_nodes: int | None = None
    vary: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    stages: bool = True
    seed: int = 1
    command: str = ""
    may_lack_target: bool = False
    """Whether runs may train for ``train.max_epochs``, without a target and without ``steps``."""
    may_lack_data: bool = False
    """Whether the dataset is made after this, so that it is not looked at."""


def define(application: Application, asked: ScalingRequest, settings: Mapping[str, str]) -> Scaling:
    """The definition of the study. Raises ``InputError`` in one line for what cannot run; changes nothing on disk."""
    from math import prod

    site = find_site(asked.site)
    given = {"staging.destination": site.local_path} if asked.stages else {}
    config = resolve(application, asked.preset, list(asked.files), {**settings, **given})
    check_options(asked, config)
    vary = axes(asked.vary, [key for key, _ in known_keys(type(config))])
    check_settings(asked, settings, vary)
    request = replace(asked.request, cores_per_rank=None)
    per_node = ranks_per_node(site, request)
    nodes = nodes_list(asked.nodes)
    study = Scaling(
        mode=asked.mode, application=application.name, preset=asked.preset, site=asked.site, nodes=nodes,
        ranks_per_node=per_node, local_batch_size=config.train.local_batch_size,
        accumulation=config.train.accumulation, global_batch_size=asked.global_batch_size,
        instance_nodes=asked.instance_nodes, repeats=asked.repeats, steps=asked.steps, vary=vary,
        settings=dict(settings), files=tuple(str(path) for path in asked.files),
        spatial_size=prod(spatial_sizes(config.parallel.spatial)), stages=asked.stages,
        request=asked_for(with_cores(asked.request, site, nodes[-1], per_node)), seed=asked.seed,
        preset_values=preset_values(application, asked.preset), commands=(asked.command,),
    )  # fmt: skip
    study = checked(study)
    check_seeds(study)
    check_points(study, site)
    first = job_of(study, site, all_runs(study)[0], Path("run"))
    study = replace(study, cores_per_rank=first.cores_per_rank, gpus_per_rank=first.gpus_per_rank)
    if not asked.may_lack_data:
        check_data(study)
    check_fits(study, site)
    return study


def check_settings(asked: ScalingRequest, settings: Mapping[str, str], vary: Mapping[str, Any]) -> None:
    """Raise ``InputError`` for settings that the study has to decide, wherever they are given."""
    refuse_decided(settings, "", asked.steps)
    for path in asked.files:
        refuse_decided(dotted(read_yaml(path)), f"{path}: ", asked.steps)
    refuse_decided(vary, "--vary ", asked.steps)
    for key in vary:
        if key in OF_BATCH:
            raise InputError(f"--vary {key} would change the batch of a size; give each value a study of its own")


def refuse_decided(keys: Iterable[str], where: str, steps: int | None) -> None:
    """Raise ``InputError`` for a setting that the study itself decides."""
    for key in keys:
        if key in DECIDED:
            hint = f"use {INSTEAD[key]}" if key in INSTEAD else "leave it out"
            raise InputError(f"{where}{key} is for the study to set; {hint}")
        if key == "train.target" and steps is not None:
            raise InputError(f"{where}train.target ends no run of --steps ({steps}); leave out one of them")


def dotted(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a settings file by their dotted keys."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return values


def check_options(asked: ScalingRequest, config: RunConfig) -> None:
    """Raise ``InputError`` for numbers that do not make a study, and for options of another mode."""
    at_least("--repeats", asked.repeats, 1)
    at_least("--seed", asked.seed, 0)
    warm = config.measure.warmup_steps
    if asked.steps is not None and asked.steps <= warm:
        raise InputError(
            f"--steps ({asked.steps}) must be more than the {counted(warm, 'step')} of the warm-up "
            "(measure.warmup_steps), which no figure counts; raise it"
        )
    if asked.steps is None and config.train.target is None and not asked.may_lack_target:
        raise InputError("train.target is unset and no --steps given, so that no run would know its end; give one")
    if asked.mode != "strong" and asked.global_batch_size is not None:
        raise InputError(f"--global-batch-size is for strong scaling; {asked.mode} keeps train.local_batch_size")
    if asked.mode == "throughput" and asked.instance_nodes is None:
        raise InputError("study throughput needs --instance-nodes, the nodes of each instance")
    if asked.mode != "throughput" and asked.instance_nodes is not None:
        raise InputError(f"--instance-nodes is for throughput studies, not {asked.mode} ones; leave it out")
    if asked.instance_nodes is not None:
        at_least("--instance-nodes", asked.instance_nodes, 1)
    if asked.global_batch_size is not None:
        at_least("--global-batch-size", asked.global_batch_size, 1)


def with_cores(request: JobRequest, site: Site, largest: int, per_node: int) -> JobRequest:
    """The request with the same share of this machine for each simulated node at every size.

    Raises ``InputError`` if the ranks of ``largest`` simulated nodes are more than the cores of this machine.
    """
    if site.scheduler != "local":
        return request
    cores, ranks = len(cores_allowed()), largest * per_node
    if ranks > cores:
        raise InputError(
            f"--nodes {largest}: {largest} x {per_node} ranks are more than the {counted(cores, 'core')} of this "
            "machine, which simulates the nodes of site local; lower it, or name another --site"
        )
    return request if request.cores_per_rank is not None else replace(request, cores_per_rank=cores // ranks)


def check_points(study: Scaling, site: Site) -> None:
    """Check that the job and the configuration of every point can be made. Raises ``InputError``."""
    for value in study.vary.get(TIER, ()):
        if value not in TIERS and not value.startswith("/"):
            raise InputError(f"--vary tier: {value!r} must be {', '.join(TIERS)}, or a folder beginning with /")
    names: set[str] = set()
    for run in all_runs(study):
        if run.name in names:
            raise InputError(
                f"--vary: two values of {', '.join(map(short, study.vary))} would share the run {run.name}"
            )
        names.add(run.name)
    for run in first_runs(study):
        run_config(study, site, run)


def check_data(study: Scaling) -> None:
    """Check that there is a dataset for every variant, and that no batch is larger than it. Raises ``InputError``.

    A dataset that is not on this machine is left to the jobs, unless they run here.
    """
    from hpcbench.train.build import open_data

    application, samples = find_application(study.application), dict[Variant, int | None]()
    site = find_site(study.site)
    for run in first_runs(study):
        of_data = tuple(pair for pair in run.point.variant if pair[0].startswith("data."))
        if of_data not in samples:
            config = run_config(study, site, run)
            elsewhere = config.data.root and not Path(config.data.root).exists() and site.scheduler != "local"
            samples[of_data] = None if elsewhere else len(open_data(application, config)[0])
        nodes, known = run_nodes(study, run), samples[of_data]
        batch = local_batch_size(study, nodes) * study.accumulation * data_parallel_size(study, nodes)
        if known is not None and batch > known:
            raise InputError(
                f"--nodes {nodes}: a global batch of {batch} is more than the {known} training samples; "
                "lower --nodes or train.local_batch_size, or use more samples"
            )


def first_runs(study: Scaling) -> list[PlannedRun]:
    """One run for each point."""
    return [group[0] for group in groups(study) if group[0].repeat == 1]
