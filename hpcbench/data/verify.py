"""Reads every file of a dataset in parallel and names each bad one."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.simulate import SPLITS
from staging.errors import DataError, InputError
from staging.progress import Progress


def verify_dataset(application: Application, config: RunConfig, processes: int | None = None) -> list[str]:
    """One line per bad file, in the order of names; empty when all is well."""
    if not config.data.root:
        raise InputError("no dataset: set --data.root DIR")
    data = application.module("data")
    files = [path for split in SPLITS for path in data.split_files(config, split)]
    workers = min(processes or len(os.sched_getaffinity(0)), len(files))
    bad: list[str] = []
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool,
        Progress(len(files), f"verify {application.name}", "files") as progress,
    ):
        results = pool.map(problem, repeat(application.package), repeat(config), files, chunksize=8)
        for line in results:
            progress.advance()
            if line is not None:
                bad.append(line)
    print(f"{len(files) - len(bad)} of {len(files)} files are good")
    return bad


def problem(package: str, config: RunConfig, path: Path) -> str | None:
    """What is wrong with a file, or ``None``."""
    try:
        import_module(f"{package}.data").check_file(path, config)
    except DataError as error:
        return str(error)
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return None
