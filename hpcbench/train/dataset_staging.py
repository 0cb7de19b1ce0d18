"""The data side of the clock: drops caches before it starts, and stages before it or while it runs."""

from __future__ import annotations

import copy
import glob
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import dataset_files, files_of_split
from hpcbench.parallel.group import Group
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.spatial.extents import Extent
from hpcbench.parallel.staging_world import staging_world
from hpcbench.train import overlapped_staging
from hpcbench.train.context import RunContext
from hpcbench.train.data_path import DataPath
from hpcbench.train.node_shard import NodeShard
from hpcbench.train.shard_staging import foresee_shards, read_shards, shared_patterns
from hpcbench.train.slab_staging import own_rows, transform_of_rows
from staging.counters import Counters
from staging.errors import InputError
from staging.landing.transforms import find_transform
from staging.ledger.destination_lock import refuse_unmakeable
from staging.options import StageOptions
from staging.phase_timer import PhaseTimer
from staging.prepare import Prepared, own_destination, prepare, settled
from staging.ranks.collective_errors import together
from staging.ranks.mpi_world import one_node_per_rank
from staging.ranks.world import World
from staging.report import StagingReport
from staging.source.index import check_index
from staging.source.page_cache import drop_cache
from staging.stage import carry_out


def drop_caches(run: RunContext, data: DataPath) -> None:
    """Ask the operating system to drop the cached pages of the dataset, if wanted, and log what was really done.

    Lists its files only then: not every dataset says which it has.
    """
    if not run.config.submission.clear_cache:
        run.log.cache_clear("not done: pages of the dataset may be cached")
        return
    files = data.files()
    dropped = drop_cache(files) if run.launch.local_rank == 0 else 0
    run.group.barrier()
    run.log.cache_clear(f"posix_fadvise DONTNEED on {dropped} of {len(files)} dataset files of each node")


def stage_dataset(run: RunContext, data: DataPath, epoch: int) -> None:
    """Stage the dataset to node-local storage, and read from there afterwards; ``epoch`` epochs are finished."""
    staging = run.config.staging
    if not staging.destination:
        return
    run.log.staging_start()
    before = run.log.elapsed_s()
    with run.phases.timer.span("staging"):
        # a re-shuffle at the start of a resumed run must find all files
        overlaps = staging.overlap and not (staging.reshuffle and epoch)
        prepared = prepare_run(run, data, epoch, world_of(run.group, staging.destination, beside=overlaps))
        if overlaps:
            overlapped_staging.begin(run, data, prepared, epoch)
            return
        report = carry_out(prepared, watcher=run.watcher)
        run.group.barrier()
    run.log.staging_stop(run.log.elapsed_s() - before if staging.timed else report.seconds)
    write_report(run, report)
    read_staged(run.config, data, prepared.destination)


def prepare_run(run: RunContext, data: DataPath, epoch: int, world: World) -> Prepared:
    """What a staging of the run will do; collective. Raises ``InputError`` on all ranks if it cannot be done."""
    application, config = run.application, run.config
    options = together(world, lambda: settled(options_of(application, config, run.seed, epoch)))
    options, rows = of_this_node(options, application, config, run.mesh.shape, data.training, world)
    data.expect_rows(rows)
    prepared = prepare(options, world, PhaseTimer(), Counters(), names(application, config))
    if options.placement == "shard":
        spatial = run.mesh.shape.spatial_size
        data.expect_shard(NodeShard(application, config, data.training, options, world, prepared.destination, spatial))
        foresee_shards(run, data, prepared, epoch)
    return prepared


def world_of(group: Group, destination: str, *, beside: bool = False) -> World:
    """The ranks as staging into ``destination`` sees them; collective."""
    world = staging_world(group, beside=beside)
    return one_node_per_rank(world) if "{rank}" in destination else world


def finish_staging(run: RunContext, data: DataPath) -> None:
    """Read from the staged copy, once a staging during training ``has_ended`` on all ranks."""
    assert data.background is not None
    timer, report = run.phases.timer, data.background.report
    with timer.span("staging"):
        run.group.barrier()
    run.log.staging_stop(report.seconds)
    write_report(run, report, exposed_s=timer.totals()["staging"])
    read_staged(run.config, data, data.background.destination)
    data.background_ended()


def write_report(run: RunContext, report: StagingReport, **more: float) -> None:
    """Write the report and ``more`` to the run folder beside those of earlier attempts, and print a summary."""
    if run.is_first:
        if run.log.resumed:
            run.folder.set_staging_aside()
        run.folder.write_json("staging.json", {**report.as_dict(), "timed": run.config.staging.timed, **more})
        run.console.say(report.sentence())
        run.console.say(report.bound_sentence())


def options_of(application: Application, config: RunConfig, seed: int, shuffle: int = 0) -> StageOptions:
    """The staging options that a run's configuration asks for; ``shuffle`` is the number of the draw of shards."""
    staging = config.staging
    return StageOptions(
        source=Path(config.data.root),
        destination=staging.destination,
        placement=staging.placement,
        seed=seed,
        contiguous=staging.contiguous,
        shuffle=shuffle if staging.reshuffle else 0,
        replicate_also=replicated_names(application, config) if staging.placement == "shard" else (),
        path=staging.path,
        transform=staging.transform,
        largest_output=largest_output(application, config),
        plain=shared_names(application, config),
        verify=staging.verify,
        repair=staging.repair,
        threads=staging.threads,
        share_files=not staging.overlap,
        index=Path(staging.index) if staging.index else None,
    )


def of_this_node(
    options: StageOptions, application: Application, config: RunConfig, shape: MeshShape, training: Any, world: World
) -> tuple[StageOptions, Extent | None]:
    """``options`` with a transform that leaves out rows that this node does not need, and the rows; collective.

    Without slabs the options stay as they are, and there are no rows.
    """
    if not config.staging.slabs:
        return options, None
    rows = own_rows(shape, training, world)
    return replace(options, transform=transform_of_rows(application, config, training, rows)), rows


def largest_output(application: Application, config: RunConfig) -> int | None:
    """The most bytes of a file that a transform may make; ``None`` where the application does not say."""
    data = application.module("data")
    return int(data.largest_file(config.data)) if hasattr(data, "largest_file") else None


def names(application: Application, config: RunConfig) -> list[str]:
    """Every file that a run reads, relative to ``data.root``."""
    root = Path(config.data.root)
    return [path.relative_to(root).as_posix() for path in dataset_files(application, config)]


def replicated_names(application: Application, config: RunConfig) -> tuple[str, ...]:
    """Patterns of the files that every node gets in addition to its shard of the training set."""
    root = Path(config.data.root)
    sharded = [path.relative_to(root).as_posix() for path in files_of_split(application, config, "train")]
    return shared_patterns(names(application, config), sharded)


def shared_names(application: Application, config: RunConfig) -> tuple[str, ...]:
    """Files that all samples share, as patterns; a transform leaves them as they are."""
    data, root = application.module("data"), Path(config.data.root)
    if not config.staging.transform or not hasattr(data, "shared_files"):
        return ()
    return tuple(glob.escape(path.relative_to(root).as_posix()) for path in data.shared_files(config))


def read_staged(config: RunConfig, data: DataPath, folder: Path) -> None:
    """Read the dataset where it landed, in the form that the transform gave it."""
    if data.node_shard is not None:
        read_shards(config, data)
    elif data.slab is not None:
        data.read_staged_rows(folder)
    else:
        data.read_staged_copy(folder)


def check_places(config: RunConfig, group: Group) -> None:
    """Raise ``InputError`` on all ranks for a destination or an index that no staging can use; collective.

    Writes nothing. ``prepare`` checks what needs a listing of the dataset, such as the space on each node.
    """
    staging = config.staging
    if not staging.destination:
        return
    world = world_of(group, staging.destination)
    options = StageOptions(Path(config.data.root).absolute(), staging.destination, path=staging.path)
    together(world, lambda: refuse_unmakeable(own_destination(options, world)))
    together(world, lambda: check_index(Path(staging.index)) if staging.index and world.place.rank == 0 else None)


def check_transform(application: Application, config: RunConfig) -> None:
    """Raise ``InputError`` for a transform that is unknown, or whose output the application cannot read."""
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
