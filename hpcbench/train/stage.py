"""The data side of the clock: dropping caches before it, staging inside or before it."""

from __future__ import annotations

import copy
import glob
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import dataset_files, split_files
from hpcbench.parallel.group import Group
from hpcbench.parallel.staging_world import staging_world
from hpcbench.train import overlap
from hpcbench.train.node_shard import NodeShard
from hpcbench.train.shards import foresee_shards, read_shards, shared_patterns
from hpcbench.train.slabs import own_rows, read_slabs, transform_of_rows
from staging.errors import InputError
from staging.landing.transforms import find_transform
from staging.moving.counters import Counters
from staging.options import StageOptions
from staging.prepare import Prepared, prepare, settled
from staging.ranks.abort import AbortWatcher
from staging.ranks.mpi_world import one_node_per_rank
from staging.ranks.together import together
from staging.ranks.world import World
from staging.report import StagingReport
from staging.source.page_cache import drop_cache
from staging.spans import Spans
from staging.stage import carry_out

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


def stage_dataset(run: Run, watcher: AbortWatcher | None = None) -> None:
    """Bring the dataset to node-local storage, and read from there afterwards."""
    staging = run.config.staging
    if not staging.destination:
        return
    run.log.staging_start()
    before = run.log.elapsed_s()
    with run.phases.spans.span("staging"):
        # a re-shuffle that a resumed run begins with has to find all files
        overlaps = staging.overlap and not (staging.reshuffle and run.state.epoch)
        prepared = prepare_run(run, world_of(run.group, staging.destination, beside=overlaps))
        if overlaps:
            overlap.begin(run, prepared, watcher)
            return
        report = carry_out(prepared, watcher=watcher)
        run.group.barrier()
    run.log.staging_stop(run.log.elapsed_s() - before if staging.timed else report.seconds)
    write_report(run, report)
    read_staged(run, prepared.destination)


def prepare_run(run: Run, world: World) -> Prepared:
    """What a staging of the run will do; collective. Raises ``InputError`` on all ranks where it cannot be done."""
    options = together(world, lambda: settled(options_of_run(run)))
    if run.config.staging.slabs:
        run.slab = own_rows(run, world)
        options = replace(options, transform=transform_of_rows(run, run.slab))
    prepared = prepare(options, world, Spans(), Counters(), names(run.application, run.config))
    if options.placement == "shard":
        run.shard = NodeShard(
            run.application, run.config, run.training, options, world, prepared.destination,
            run.mesh.shape.spatial_size,
        )  # fmt: skip
        foresee_shards(run, prepared)
    return prepared


def world_of(group: Group, destination: str, *, beside: bool = False) -> World:
    """The ranks as staging into ``destination`` sees them; collective."""
    world = staging_world(group, beside=beside)
    return one_node_per_rank(world) if "{rank}" in destination else world


def finish_staging(run: Run) -> None:
    """After an epoch under which the dataset was staged: wait for the rest, and read from there afterwards."""
    if run.arrivals is None:
        return
    spans = run.phases.spans
    with spans.span("staging"):
        report = run.arrivals.finish()
        run.group.barrier()
    spans.move("input_wait", "staging", run.arrivals.waited_s)
    run.log.staging_stop(report.seconds)
    write_report(run, report, exposed_s=spans.totals()["staging"])
    read_staged(run, run.arrivals.destination)
    run.arrivals = None


def write_report(run: Run, report: StagingReport, **more: float) -> None:
    """Keep the report in the run folder, and say it in a sentence; ``more`` comes beside it."""
    if run.is_first:
        run.folder.write_json("staging.json", {**report.as_dict(), "timed": run.config.staging.timed, **more})
        run.console.say(report.sentence())
        run.console.say(report.bound_sentence())


def options_of(application: Application, config: RunConfig, seed: int, shuffle: int = 0) -> StageOptions:
    """What a run's configuration asks of staging; ``shuffle`` is the number of the draw of shards."""
    staging = config.staging
    return StageOptions(
        source=Path(config.data.root),
        destination=staging.destination,
        placement=staging.placement,
        seed=seed,
        shuffle=shuffle if staging.reshuffle else 0,
        replicate_also=replicated_names(application, config) if staging.placement == "shard" else (),
        path=staging.path,
        transform=staging.transform,
        plain=shared_names(application, config),
        verify=staging.verify,
        threads=staging.threads,
        index=Path(staging.index) if staging.index else None,
    )


def options_of_run(run: Run) -> StageOptions:
    """What the configuration asks of staging where the run stands."""
    return options_of(run.application, run.config, run.seed, run.state.epoch)


def names(application: Application, config: RunConfig) -> list[str]:
    """Every file that a run reads, relative to ``data.root``."""
    root = Path(config.data.root)
    return [path.relative_to(root).as_posix() for path in dataset_files(application, config)]


def replicated_names(application: Application, config: RunConfig) -> tuple[str, ...]:
    """Patterns of the files that every node gets beside its shard of the training set."""
    root = Path(config.data.root)
    sharded = [path.relative_to(root).as_posix() for path in split_files(application, config, "train")]
    return shared_patterns(names(application, config), sharded)


def shared_names(application: Application, config: RunConfig) -> tuple[str, ...]:
    """Files that all samples share, as patterns; a transform leaves them as they are."""
    data, root = application.module("data"), Path(config.data.root)
    if not config.staging.transform or not hasattr(data, "shared_files"):
        return ()
    return tuple(glob.escape(path.relative_to(root).as_posix()) for path in data.shared_files(config))


def read_staged(run: Run, folder: Path) -> None:
    """Read the dataset where it landed, in the form that the transform gave it."""
    if run.shard is not None:
        read_shards(run)
        return
    if run.slab is not None:
        read_slabs(run, folder)
        return
    transform = run.config.staging.transform
    if transform:
        run.application.module("data").staged_form(run.config.data, transform)
    run.read_from(folder)


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
