"""Sets up a run: checks its input on every rank before anything is written, then builds its parts."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcbench.application import Application
from hpcbench.config.read_yaml import read_yaml
from hpcbench.config.resolve import as_tree
from hpcbench.config.schema import LARGEST_SEED, RunConfig
from hpcbench.measure.communication import Communication
from hpcbench.measure.environment import environment_record
from hpcbench.measure.memory import reset_peak_memory
from hpcbench.measure.mllog import RunLog
from hpcbench.measure.mllog_resume import read_finished
from hpcbench.measure.phases import Phases
from hpcbench.measure.shared_clock import SharedClock
from hpcbench.measure.step_times import StepTimes
from hpcbench.measure.system import system_description
from hpcbench.optim.lr_scaling import rate_note, scale_to_batch
from hpcbench.parallel.gradients import broadcast_state
from hpcbench.parallel.mesh import make_mesh
from hpcbench.parallel.mesh_shape import MeshShape, mesh_shape
from hpcbench.parallel.simulated_ranks import DataRanks, data_ranks
from hpcbench.results.attempts import Attempts, lost_attempts
from hpcbench.results.checkpoint_files import complete
from hpcbench.results.folder_lock import lock
from hpcbench.results.run_folder import RunFolder, create_default, default_path, earlier_configs
from hpcbench.results.units import counted
from hpcbench.train import checkpoint_io
from hpcbench.train.attempt_recorder import AttemptRecorder
from hpcbench.train.build import build_model, build_optimizer, check_batch, open_data
from hpcbench.train.check_mesh import check_mesh
from hpcbench.train.checkpoint_times import CheckpointTimes
from hpcbench.train.checkpointing import Checkpoints
from hpcbench.train.console import Console
from hpcbench.train.context import RunContext
from hpcbench.train.data_path import DataPath
from hpcbench.train.dataset_staging import check_places, check_transform
from hpcbench.train.distribute import distribute
from hpcbench.train.hang_watch import HangWatch
from hpcbench.train.loop import Trainer
from hpcbench.train.measurement import ObserverInputs
from hpcbench.train.measurements import check_measurements, looks_at_gradients, make_observers, slowed_steps
from hpcbench.train.memory_limits import check_memory
from hpcbench.train.progress import Progress
from hpcbench.train.rank_metrics import RankMetrics
from hpcbench.train.ranks import Ranks
from hpcbench.train.resume_check import (
    check_records,
    check_same,
    has_met,
    newest_checkpoint,
    refuse_complete,
    refuse_met_before,
    wants_more,
)
from hpcbench.train.shard_staging import check_placement
from hpcbench.train.slab_staging import check_slabs
from hpcbench.train.state import State
from hpcbench.train.task import Task
from hpcbench.train.training_step import TrainingStep
from hpcbench.train.whole_step import captures_whole_step
from staging.errors import InputError
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import Launch
from staging.ranks.signals import Interrupts


def set_up(
    application: Application, config: RunConfig, ranks: Ranks, timer: PhaseTimer, interrupts: Interrupts,
    run_dir: Path | None, *, resume: bool, again: bool = False, watch: HangWatch | None = None,
) -> Trainer:  # fmt: skip
    """Set up a run with all its parts. Bad input raises ``InputError`` on every rank, and leaves nothing behind.

    ``watch`` learns of every finished stage, and of the run folder once there is one.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    group, launch = ranks.group, ranks.launch
    progress = Progress() if watch is None else watch.progress
    if config.train.seed is None:
        restarted = run_dir if again and not resume and launch.rank == 0 else None
        config.train.seed = group.broadcast_object(seed_of(restarted))
    training, validation = ranks.together(lambda: open_data(application, config))
    progress.touch()
    shape, shared = check_input(application, config, ranks, training)
    task = ranks.together(lambda: application.module("task").build_task(config))
    ranks.together(lambda: check_slabs(application, config, shape, task))
    progress.touch()
    model = build_model(application, config, ranks.device, config.train.seed)
    progress.touch()
    times = CheckpointTimes()
    folder, checkpoint = run_folder_of(application, config, ranks, run_dir, times, resume=resume, again=again)
    if watch is not None:
        watch.report_into(folder)
    progress.touch()
    log = ranks.together(lambda: start_log(folder, application, config, launch.rank, task, checkpoint))
    broadcast_state(model, group)
    phases = Phases(timer, ranks.device, in_step=False)
    timer.listen(progress.enter)
    communication = Communication(phases, SharedClock(group))
    mesh = make_mesh(group, shape, shared.processes, config.parallel.timeout_s, communication)
    whole, reducer = distribute(application, config, model, group, mesh, shared, communication)
    passes, observed = shared.passes * config.train.accumulation, looks_at_gradients(config)
    captured = captures_whole_step(config, launch.world_size, passes, observed=observed)
    progress.touch()
    optimizer = ranks.together(
        lambda: build_optimizer(config, task, model, ranks.device, ranks.precision, capturable=captured)
    )
    reset_peak_memory(ranks.device)
    asked = as_tree(config)  # before the rate is scaled, which a resumed run does again
    scale_to_batch(config, config.train.local_batch_size * config.train.accumulation * shared.total)
    run = RunContext(
        application=application, config=config, launch=launch, group=group, watcher=ranks.watcher, mesh=mesh,
        data_ranks=shared, device=ranks.device, precision=ranks.precision, threads=ranks.threads,
        seed=config.train.seed, task=task, phases=phases, progress=progress,
        communication=communication, folder=folder, log=log,
        console=Console(launch.rank == 0, config.train.max_epochs), interrupts=interrupts, started=started,
    )  # fmt: skip
    data = DataPath(run, training, validation)
    step = TrainingStep(run, model, whole, optimizer, reducer, whole=captured)
    trainer = assemble(run, data, step, checkpoint, times)
    if run.is_first:
        folder.write_config(asked)
    write_description(run, data)
    run.console.say(headline(run))
    return trainer


def seed_of(path: Path | None) -> int:
    """The seed that the last earlier attempt in the run folder ``path`` drew; a new one if no attempt left its own.

    It is part of what a destination with shards is for, so that the next attempt can take them over.
    """
    for config in [] if path is None else earlier_configs(path):
        with contextlib.suppress(InputError):
            train = read_yaml(config).get("train")
            seed = train.get("seed") if isinstance(train, dict) else None
            if type(seed) is int and 0 <= seed <= LARGEST_SEED:
                return seed
    return secrets.randbelow(2**31)


def check_input(
    application: Application, config: RunConfig, ranks: Ranks, training: Any
) -> tuple[MeshShape, DataRanks]:
    """The mesh and its data-parallel ranks. Raises ``InputError`` on all ranks for a run that cannot be trained."""
    launch = ranks.launch
    ranks.together(lambda: check_transform(application, config))
    check_places(config, ranks.group)
    nodes = ranks.group.all_gather_object(launch.node_rank)
    shape = ranks.together(lambda: mesh_shape(launch.world_size, config.parallel.spatial))
    ranks.together(lambda: check_placement(application, config, training, nodes, shape.spatial_size))
    ranks.together(lambda: check_mesh(application, config, shape, launch.rank))
    ranks.together(lambda: check_memory(application, config, ranks.device, launch.local_size))
    shared = ranks.together(lambda: ranks_of(config, launch, shape))
    ranks.together(lambda: check_batch(config, len(training), shared.total))
    ranks.together(lambda: check_measurements(config, shape.data * shared.passes * config.train.accumulation))
    return shape, shared


def assemble(
    run: RunContext, data: DataPath, step: TrainingStep, checkpoint: checkpoint_io.Checkpoint | None,
    times: CheckpointTimes,
) -> Trainer:  # fmt: skip
    """The trainer with its observers, in the state of ``checkpoint``. Raises ``InputError`` for another run's."""
    unmeasured = run.config.measure.warmup_steps + slowed_steps(run.config)
    step_times = StepTimes(run.phases, unmeasured, run.communication)
    rank_metrics = RankMetrics(run.group, step_times, run.threads, has_simulated_nodes(run.config))
    step.observers = make_observers(
        ObserverInputs(run, step, step_times, resumed_step=0 if checkpoint is None else int(checkpoint.state["step"]))
    )
    checkpoints = Checkpoints(run, step, (len(data.training), len(data.validation)), times)
    state, earlier = State(), Attempts()
    if checkpoint is not None:
        earlier = run.group.together(lambda: Attempts.read(run.folder.path))
        checkpoints.times.learn(attempt.checkpoint for attempt in earlier.attempts)
        state = run.group.together(lambda: checkpoints.restore(checkpoint))
        if not earlier.attempts:  # the file was removed, or a run killed between its first checkpoint and the file
            earlier = lost_attempts((run.log.run_start_ms or 0) / 1e3, state.step)
    recorder = AttemptRecorder(run, rank_metrics, checkpoints.times, earlier, state.step)
    checkpoints.writer.on_written = recorder.record_written
    trainer = Trainer(run, data, step, rank_metrics, checkpoints, recorder, state)
    if checkpoint is not None:  # last, since a refused run must leave the folder, and above all the log, as it was
        tables = (*step.observers.tables, "epochs.csv")
        run.group.together(lambda: continue_folder(run, tables, state.step) if run.is_first else None)
    return trainer


def continue_folder(run: RunContext, tables: Sequence[str], step: int) -> None:
    """Continue in the folder of a run at optimizer step ``step``. Raises ``InputError`` if it cannot be written."""
    folder = run.folder
    try:
        folder.reserve()
        for table in tables:
            folder.truncate_rows(table, step)
        run.log.rewrite()
        run.log.submission(run.config, run.application)
    except OSError as error:
        problem = f"run folder {folder.path} cannot be written ({error.strerror})"
        raise InputError(f"{problem}; free some space there, or check its permissions") from error


def has_simulated_nodes(config: RunConfig) -> bool:
    """Whether the nodes that ranks name are simulated."""
    return config.parallel.simulated_nodes is not None and config.parallel.simulated_ranks is None


def headline(run: RunContext) -> str:
    """The first line of a run: what runs where."""
    ranks = counted(run.launch.world_size, "rank")
    if run.mesh.axes:
        ranks += f" as {run.mesh.shape.words} (data x spatial)"
    if run.config.parallel.simulated_ranks is not None:
        ranks += f" simulating {run.data_ranks.total}"
    return (
        f"{run.application.name} {run.config.preset}: {ranks} x {counted(run.threads, 'thread')} on "
        f"{run.device_name}, {run.precision.name}, global batch {run.global_batch_size}, "
        f"{rate_note(run.config.optim, run.global_batch_size)}, seed {run.seed}"
    )


def ranks_of(config: RunConfig, launch: Launch, shape: MeshShape) -> DataRanks:
    """The data-parallel ranks of the configuration. Raises ``InputError`` if they cannot be formed."""
    simulated, group_size = config.parallel.simulated_ranks, config.train.batchnorm_group_size
    return data_ranks(launch.rank // shape.spatial_size, shape.data, simulated, group_size)


def run_folder_of(
    application: Application, config: RunConfig, ranks: Ranks, run_dir: Path | None, times: CheckpointTimes, *,
    resume: bool, again: bool,
) -> tuple[RunFolder, checkpoint_io.Checkpoint | None]:  # fmt: skip
    """The run folder, new or continued, and the checkpoint to continue from; the same on all ranks. Collective."""
    name = application.name, config.preset or "run"
    seen = ranks.group.all_gather_object(newest_checkpoint(run_dir) if resume and run_dir else "")
    ranks.together(lambda: check_same(seen))
    folder, checkpoint = ranks.together(
        lambda: open_folder(run_dir, name, ranks.launch.rank, times, resume=resume, again=again)
    )
    if ranks.launch.rank == 0:
        lock(folder.path)
    return RunFolder(ranks.group.broadcast_object(str(folder.path))), checkpoint


def open_folder(
    path: Path | None, name: tuple[str, str], rank: int, times: CheckpointTimes, *, resume: bool, again: bool
) -> tuple[RunFolder, checkpoint_io.Checkpoint | None]:
    """As ``run_folder_of``, on one rank: rank 0 makes a new folder, if without ``path`` under a free ``name``."""
    if resume:
        folder = RunFolder.open(path or default_path(*name))
        checkpoint = checkpoint_io.load_newest(folder.checkpoints, times)
        if checkpoint is None:
            raise InputError(f"{path} holds no checkpoint to resume from; start again with another --run-dir")
        if rank == 0:
            check_records(folder, State.from_dict(checkpoint.state), complete(folder.checkpoints)[-1])
        return folder, checkpoint
    if rank != 0:
        return RunFolder(path or Path()), None
    if path is None:
        return create_default(*name), None
    if again:
        RunFolder(path).set_aside()
    return RunFolder.create(path), None


def start_log(
    folder: RunFolder, application: Application, config: RunConfig, rank: int, task: Task,
    checkpoint: checkpoint_io.Checkpoint | None,
) -> RunLog:  # fmt: skip
    """The official log up to the start of the initialisation; that of a resumed run is only read so far."""
    first = rank == 0
    if checkpoint is None:
        log = RunLog(folder.mllog, enabled=first)
        log.submission(config, application)
        log.init_start()
        return log
    state, end = State.from_dict(checkpoint.state), read_finished(folder.mllog)
    refuse_met_before(folder, config, task, state)
    if end is not None and not wants_more(config, task, state, end):
        refuse_complete(folder, config, met=has_met(config, task, state, end))
        return RunLog.finished(folder.mllog, end)
    return RunLog.resume(folder.mllog, enabled=first, epoch=state.evaluated, extend=end is not None)


def write_description(run: RunContext, data: DataPath) -> None:
    """Describe the run in files and in the log: system, versions, hyperparameters."""
    log, config, launch = run.log, run.config, run.launch
    accelerators = launch.local_size if run.device.type != "cpu" else 0
    log.seed(run.seed)
    log.samples(len(data.training), len(data.validation))
    log.geometry(run.global_batch_size, launch.nodes, accelerators, launch.world_size)
    log.event("data_parallel", run.mesh.shape.data)
    log.event("spatial_parallel", run.mesh.shape.spatial_size)
    if run.mesh.axes:
        log.event("spatial_split", list(run.mesh.shape.spatial))
    if config.parallel.simulated_ranks is not None:
        log.event("simulated_ranks", run.data_ranks.total)
    if config.staging.placement == "replicate":  # otherwise logged once the shards are known
        log.hyperparameters(run.task.log_keys(data.steps_per_epoch))
    if config.train.target is not None:
        log.quality_target(config.train.target)
    if not run.is_first:
        return
    description = system_description(config, launch.nodes, run.folder.path, accelerators)
    run.folder.write_json("system.json", description)
    record: dict[str, Any] = environment_record(sys.argv)
    run.folder.write_json("environment.json", {**record, "ranks": launch.world_size, "launched_by": launch.source})
