"""The data side of the clock: dropping caches before it, staging inside or before it."""

from __future__ import annotations

import copy
import glob
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import split_files
from hpcbench.parallel.staging_world import staging_world
from hpcbench.train import overlap
from hpcbench.train.shards import NodeShard, shared_patterns
from staging.destination import expand
from staging.errors import InputError
from staging.mpi_world import one_node_per_rank
from staging.options import StageOptions
from staging.page_cache import drop_cache
from staging.report import StagingReport
from staging.stage import stage
from staging.transforms import find_transform
from staging.world import World

if TYPE_CHECKING:
    from hpcbench.train.context import Run


def drop_caches(run: Run) -> None:
    """Ask the operating system to forget the dataset's pages, if wanted, and log what was really done."""
    if not run.config.submission.clear_cache:
        run.log.cache_clear("not done: pages of the dataset may be cached")
        return
    files = run.dataset_files()
    dropped = drop_cache(files) if run.launch.local_rank == 0 else 0
    run.group.barrier()
    run.log.cache_clear(f"posix_fadvise DONTNEED on {dropped} of {len(files)} dataset files of each node")


def stage_dataset(run: Run) -> None:
    """Bring the dataset to node-local storage, and read from there afterwards."""
    staging = run.config.staging
    if not staging.destination:
        return
    run.log.staging_start()
    before = run.log.elapsed_s()
    with run.phases.spans.span("staging"):
        world = staging_world(run.group, beside=staging.overlap)
        if "{rank}" in staging.destination:
            world = one_node_per_rank(world)
        if staging.overlap:
            overlap.begin(run, options_of(run), world, own_destination(run, world), names(run))
            return
        report = stage(options_of(run), world, names(run), quiet=not run.is_first)
        run.group.barrier()
    run.log.staging_stop(run.log.elapsed_s() - before if staging.timed else report.seconds)
    write_report(run, report)
    read_staged(run, world)


def finish_staging(run: Run) -> None:
    """After an epoch under which the dataset was staged: wait for the rest, and read from there afterwards."""
    if run.arrivals is None:
        return
    spans = run.phases.spans
    with spans.span("staging"):
        before = time.perf_counter()
        report = run.arrivals.finish()
        run.group.barrier()
        rest = time.perf_counter() - before
    spans.move("input_wait", "staging", run.arrivals.waited_s)
    run.log.staging_stop(report.seconds)
    write_report(run, report, exposed_s=run.arrivals.waited_s + rest)
    read_staged(run, run.arrivals.world)
    run.arrivals = None


def write_report(run: Run, report: StagingReport, **more: float) -> None:
    """Keep the report in the run folder, and say it in a sentence; ``more`` comes beside it."""
    if run.is_first:
        run.folder.write_json("staging.json", {**report.as_dict(), "timed": run.config.staging.timed, **more})
        run.console.say(report.sentence())


def own_destination(run: Run, world: World) -> Path:
    """Where the dataset lands on this rank's node."""
    return expand(run.config.staging.destination, world.place.node_name, world.place.rank, os.environ)


def options_of(run: Run) -> StageOptions:
    """What the run's configuration asks of staging."""
    staging = run.config.staging
    return StageOptions(
        source=Path(run.config.data.root),
        destination=staging.destination,
        placement=staging.placement,
        seed=run.seed,
        shuffle=run.state.epoch if staging.reshuffle else 0,
        replicate_also=replicated_names(run) if staging.placement == "shard" else (),
        path=staging.path,
        transform=staging.transform,
        plain=shared_names(run),
        verify=staging.verify,
        threads=staging.threads,
        index=Path(staging.index) if staging.index else None,
    )


def names(run: Run) -> list[str]:
    """Every file that the run reads, relative to ``data.root``."""
    root = Path(run.config.data.root)
    return [path.relative_to(root).as_posix() for path in run.dataset_files()]


def replicated_names(run: Run) -> tuple[str, ...]:
    """Patterns of the files that every node gets beside its shard of the training set."""
    root = Path(run.config.data.root)
    sharded = split_files(run.application, run.config, "train")
    return shared_patterns(names(run), [path.relative_to(root).as_posix() for path in sharded])


def shared_names(run: Run) -> tuple[str, ...]:
    """Files that all samples share, as patterns; a transform leaves them as they are."""
    data, root = run.application.module("data"), Path(run.config.data.root)
    shared = data.shared_files(run.config) if hasattr(data, "shared_files") else []
    return (
        tuple(glob.escape(path.relative_to(root).as_posix()) for path in shared) if run.config.staging.transform else ()
    )


def read_staged(run: Run, world: World) -> None:
    """Read the dataset where it landed, in the form that the transform gave it."""
    staging = run.config.staging
    if staging.placement == "shard":
        run.shard = NodeShard(run, options_of(run), world, own_destination(run, world))
        run.shard.read(run)
        return
    if staging.transform:
        run.application.module("data").staged_form(run.config.data, staging.transform)
    run.read_from(own_destination(run, world))


def check_transform(application: Application, config: RunConfig) -> None:
    """Raise ``InputError`` for a transform that is unknown, or whose outcome the application cannot read."""
    transform = config.staging.transform
    if not transform:
        return
    find_transform(transform)
    data = application.module("data")
    if not hasattr(data, "staged_form"):
        raise InputError(
            f"{application.name} cannot read what staging.transform {transform} makes; "
            f"add staged_form(data, transform) to {application.package}.data, or leave the transform out"
        )
    data.staged_form(copy.deepcopy(config.data), transform)
