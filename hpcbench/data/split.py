"""Cuts files that hold many samples each, such as a whole universe, into the samples of a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import as_completed
from importlib import import_module
from pathlib import Path

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.workers import allowed_cores, worker_pool
from staging.errors import InputError
from staging.progress import Progress


def cut_files(
    application: Application, config: RunConfig, paths: list[Path], out: Path, processes: int | None = None
) -> int:
    """Cut each of ``paths`` into samples below ``out``, several files at a time; returns the number of samples.

    Existing samples stay, so that an interrupted split continues. Raises ``InputError`` for an application without
    such files, a missing file, two files that give a sample of the same name, and an existing sample that holds
    something else.
    """
    if not hasattr(application.module("data"), "cut_file"):
        raise InputError(f"{application.name} has no files to split; its data.py lacks cut_file(path, folder, config)")
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path}: no such file; name the files to split")
    written: dict[Path, Path] = {}
    with Progress(len(paths), f"split {application.name}", "files") as progress:
        for path, samples in split_all(application, config, paths, out, processes or allowed_cores()):
            for sample in samples:
                if (other := written.setdefault(sample, path)) != path:
                    raise InputError(f"{path} and {other} both give {sample}; rename one, or split them apart")
            progress.advance()
    return len(written)


def split_all(
    application: Application, config: RunConfig, paths: list[Path], out: Path, processes: int
) -> Iterator[tuple[Path, list[Path]]]:
    """Each file with the samples that it gave, in the order in which the files are done."""
    workers = min(processes, len(paths))
    if workers == 1:
        yield from ((path, split_one(application.package, path, out, config)) for path in paths)
        return
    with worker_pool(application.package, workers) as pool:
        futures = {pool.submit(split_one, application.package, path, out, config): path for path in paths}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def split_one(package: str, path: Path, out: Path, config: RunConfig) -> list[Path]:
    """The samples of one file."""
    samples: list[Path] = import_module(f"{package}.data").cut_file(path, out, config)
    return samples
