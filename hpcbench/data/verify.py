"""Reads every file of a dataset in parallel and names each bad one."""

from __future__ import annotations

from importlib import import_module
from itertools import repeat
from pathlib import Path

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import dataset_files
from hpcbench.data.workers import allowed_cores, worker_pool
from hpcbench.results.units import counted
from staging.errors import DataError, InputError
from staging.files import special_files_listed
from staging.formats.regular import refuse_special
from staging.progress import Progress


def verify_dataset(application: Application, config: RunConfig, processes: int | None = None) -> list[str]:
    """One line per bad file, in the order of names; empty if all files are good."""
    if not config.data.root:
        raise InputError(f"no dataset: name its folder, as in `hpcbench data verify {application.name} DIR`")
    if not hasattr(application.module("data"), "check_file"):
        raise InputError(f"{application.name} cannot verify files; add check_file(path, config) to its data.py")
    with special_files_listed():
        files = dataset_files(application, config)
    if not files:
        raise InputError(f"{application.name} names no file in {config.data.root}; mend files_of_split in its data.py")
    workers = min(processes or allowed_cores(), len(files))
    bad: list[str] = []
    with (
        worker_pool(application.package, workers) as pool,
        Progress(len(files), f"verify {application.name}", "files") as progress,
    ):
        results = pool.map(problem, repeat(application.package), repeat(config), files, chunksize=8)
        for line in results:
            progress.advance()
            if line is not None:
                bad.append(line)
    print(f"{len(files) - len(bad)} of {counted(len(files), 'file')} {'is' if len(files) == 1 else 'are'} good")
    return bad


def problem(package: str, config: RunConfig, path: Path) -> str | None:
    """What is wrong with a file, or ``None``. A file that is not regular is not opened."""
    try:
        refuse_special(path)
        import_module(f"{package}.data").check_file(path, config)
    except DataError as error:
        return str(error)
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    return None
