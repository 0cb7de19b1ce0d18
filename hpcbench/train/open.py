"""Opens a run: checks its input on every rank before anything is written, then builds its parts."""

from __future__ import annotations

import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcbench.application import Application
from hpcbench.config.resolve import as_tree
from hpcbench.config.schema import RunConfig
from hpcbench.measure.environment import environment_record
from hpcbench.measure.memory import reset_peak_memory
from hpcbench.measure.mllog import RunLog
from hpcbench.measure.phases import Phases
from hpcbench.measure.system import system_description
from hpcbench.optim.scaling import rate_note, scale_to_batch
from hpcbench.parallel.data_ranks import DataRanks, data_ranks
from hpcbench.parallel.gradients import broadcast_state
from hpcbench.parallel.mesh import make_mesh
from hpcbench.parallel.mesh_shape import MeshShape, mesh_shape
from hpcbench.results.run_folder import RunFolder, default_path
from hpcbench.train import checkpoint as checkpoints
from hpcbench.train.build import build_model, build_optimizer, check_batch, open_data
from hpcbench.train.check_mesh import check_mesh
from hpcbench.train.console import Console
from hpcbench.train.context import Run
from hpcbench.train.distribute import distribute
from hpcbench.train.interrupt import Interrupts
from hpcbench.train.noise_scale import check_noise_scale
from hpcbench.train.ranks import Ranks
from hpcbench.train.saving import restore
from hpcbench.train.shards import check_placement
from hpcbench.train.slabs import check_slabs
from hpcbench.train.stage import check_transform
from hpcbench.train.state import State
from staging.errors import InputError
from staging.ranks.launch import Launch
from staging.spans import Spans


def open_run(
    application: Application,
    config: RunConfig,
    ranks: Ranks,
    spans: Spans,
    interrupts: Interrupts,
    run_dir: Path | None,
    *,
    resume: bool,
    again: bool = False,
) -> Run:
    """All parts of a run. Bad input raises ``InputError`` on every rank, and leaves nothing behind."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    group, launch = ranks.group, ranks.launch
    if config.train.seed is None:
        config.train.seed = group.broadcast_object(secrets.randbelow(2**31))
    seed = config.train.seed
    path = Path(group.broadcast_object(str(run_dir or default_path(application.name, config.preset or "run"))))
    training, validation = ranks.together(lambda: open_data(application, config))
    ranks.together(lambda: check_transform(application, config))
    nodes = group.all_gather_object(launch.node_rank)
    shape = ranks.together(lambda: mesh_shape(launch.world_size, config.parallel.spatial))
    ranks.together(lambda: check_placement(application, config, training, nodes, shape.spatial_size))
    ranks.together(lambda: check_mesh(application, config, shape, launch.rank))
    shared = ranks.together(lambda: ranks_of(config, launch, shape))
    ranks.together(lambda: check_batch(config, len(training), shared.total))
    ranks.together(lambda: check_noise_scale(config, shape.data * shared.turns * config.train.accumulation))
    task = ranks.together(lambda: application.module("task").build_task(config))
    ranks.together(lambda: check_slabs(application, config, shape, task))
    folder, found = ranks.together(lambda: open_folder(path, launch.rank, resume=resume, again=again))
    log = ranks.together(lambda: start_log(folder, application, config, ranks, found))
    model = build_model(application, config, ranks.fabric, seed)
    broadcast_state(model, group)
    mesh = make_mesh(group, shape, shared.processes, config.parallel.timeout_s)
    whole, reducer = distribute(application, config, model, ranks, mesh, shared)
    optimizer = ranks.together(lambda: build_optimizer(config, task, model, ranks.fabric))
    reset_peak_memory(ranks.fabric.device)
    run = Run(
        application=application, config=config, launch=launch, group=group, mesh=mesh, data_ranks=shared,
        fabric=ranks.fabric, phases=Phases(spans, ranks.fabric.device), folder=folder, log=log,
        console=Console(launch.rank == 0, config.train.max_epochs), interrupts=interrupts, seed=seed,
        threads=ranks.threads, task=task, training=training, validation=validation, model=model,
        whole_model=whole, optimizer=optimizer, reducer=reducer, started=started,
    )  # fmt: skip
    if found is not None:
        ranks.together(lambda: restore(run, found))
    if run.is_first:
        folder.write_config(as_tree(config))
    scale_to_batch(config, run.global_batch_size)
    write_description(run)
    run.console.say(headline(run))
    return run


def headline(run: Run) -> str:
    """The first line of a run: what runs where."""
    ranks = f"{run.launch.world_size} rank{'s' if run.launch.world_size > 1 else ''}"
    if run.mesh.axes:
        ranks += f" as {run.mesh.shape.words} (data x spatial)"
    if run.config.parallel.simulated_ranks is not None:
        ranks += f" simulating {run.data_ranks.total}"
    return (
        f"{run.application.name} {run.config.preset}: {ranks} x {run.threads} threads on {run.device_name}, "
        f"{run.precision}, global batch {run.global_batch_size}, "
        f"{rate_note(run.config.optim, run.global_batch_size)}, seed {run.seed}"
    )


def ranks_of(config: RunConfig, launch: Launch, shape: MeshShape) -> DataRanks:
    """The data-parallel ranks of the configuration. Raises ``InputError`` where they cannot be formed."""
    simulated, group_size = config.parallel.simulated_ranks, config.train.batchnorm_group_size
    return data_ranks(launch.rank // shape.spatial_size, shape.data, simulated, group_size)


def open_folder(path: Path, rank: int, *, resume: bool, again: bool) -> tuple[RunFolder, checkpoints.Checkpoint | None]:
    """The run folder, new or continued, and the checkpoint to continue from. Rank 0 makes it, the others name it."""
    if resume:
        folder = RunFolder.open(path)
        found = checkpoints.load_newest(folder.checkpoints)
        if found is None:
            raise InputError(f"{path} holds no checkpoint to resume from; start again with another --run-dir")
        return folder, found
    if rank != 0:
        return RunFolder(path), None
    if again:
        RunFolder(path).set_aside()
    return RunFolder.create(path), None


def start_log(
    folder: RunFolder, application: Application, config: RunConfig, ranks: Ranks, found: checkpoints.Checkpoint | None
) -> RunLog:
    """The official log up to the start of the initialisation; a resumed one goes on where it was."""
    first = ranks.launch.rank == 0
    if found is None:
        log = RunLog(folder.mllog, enabled=first)
    else:
        log = RunLog.resume(folder.mllog, enabled=first, epoch=State.from_dict(found.state).evaluated)
        if first:
            folder.reserve()
            for table in ("steps.csv", "epochs.csv", "noise_scale.csv", "trust_ratios.csv"):
                folder.truncate_rows(table, int(found.state["step"]))
    log.submission(config, application)
    log.init_start()
    return log


def write_description(run: Run) -> None:
    """What the run is, in files and in the log: system, versions, hyperparameters."""
    log, config, launch = run.log, run.config, run.launch
    accelerators = launch.local_size if run.device.type != "cpu" else 0
    log.seed(run.seed)
    log.samples(len(run.training), len(run.validation))
    log.geometry(run.global_batch_size, launch.nodes, accelerators, launch.world_size)
    log.event("data_parallel", run.mesh.shape.data)
    log.event("spatial_parallel", run.mesh.shape.spatial_size)
    if run.mesh.axes:
        log.event("spatial_split", list(run.mesh.shape.spatial))
    if config.parallel.simulated_ranks is not None:
        log.event("simulated_ranks", run.data_ranks.total)
    if config.staging.placement == "replicate":  # else once the shards are known
        log.hyperparameters(run.task.log_keys(run.steps_per_epoch))
    if config.train.target is not None:
        log.quality_target(config.train.target)
    if not run.is_first:
        return
    run.folder.write_json("system.json", system_description(config, launch.nodes, run.folder.path))
    record: dict[str, Any] = environment_record(sys.argv)
    run.folder.write_json("environment.json", {**record, "ranks": launch.world_size, "launched_by": launch.source})
