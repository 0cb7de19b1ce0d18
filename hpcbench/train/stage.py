"""The data side of the clock: dropping caches before it, staging inside or before it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from staging.copy import drop_cache, stage
from staging.errors import InputError
from staging.progress import Progress

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
    """Copy the dataset to node-local storage, and read from there afterwards."""
    staging = run.config.staging
    if not staging.destination:
        return
    source, destination = Path(run.config.data.root), Path(staging.destination)
    if destination.resolve() == source.resolve():
        raise InputError(f"staging.destination ({destination}) is data.root itself; give a node-local folder")
    names = [path.relative_to(source) for path in run.dataset_files()]
    launch, spans = run.launch, run.phases.spans
    mine = len(names[launch.local_rank :: launch.local_size])
    run.log.staging_start()
    before = run.log.elapsed_s()
    with Progress(mine, f"stage to {destination}", "files", enabled=run.is_first) as progress:
        report = stage(
            source, destination, names, staging.threads, launch.local_rank, launch.local_size,
            spans=spans, progress=progress, barrier=run.group.barrier,
        )  # fmt: skip
        with spans.span("staging"):
            run.group.barrier()
    run.log.staging_stop(run.log.elapsed_s() - before if staging.timed else report.seconds)
    if run.is_first:
        run.folder.write_json("staging.json", {**report.as_dict(), "timed": staging.timed, "ranks": launch.world_size})
    run.read_from(destination)
