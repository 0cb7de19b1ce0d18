"""The files of a dataset: the samples of a split, and everything that a run reads."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from hpcbench.application import Application
from hpcbench.config.schema import DataConfig, RunConfig
from staging.errors import DataError, InputError
from staging.files import HINT, expected_files, list_samples
from staging.first_reads import FirstReads
from staging.ledger.manifest import load_records, staged_destination

SPLITS = ("train", "validation")


def sample_files(data: DataConfig, split: str, suffix: str) -> list[Path]:
    """The files of ``data.root / split`` that end with ``suffix``: as many as ``data`` asks for, the first by name.

    Raises ``DataError`` if there is none, and ``InputError`` if ``data`` asks for more than there are.
    """
    folder = Path(data.root) / split
    files = list_samples(folder, suffix)
    key = f"{split}_samples"
    wanted = getattr(data, key, None)
    if wanted is not None and not 1 <= wanted <= len(files):
        raise InputError(f"data.{key} ({wanted}) must be between 1 and {len(files)}, the samples in {folder}; lower it")
    return files[:wanted]


def checked_reads(config: RunConfig) -> AbstractContextManager[None]:
    """Compare what is read of a staged dataset with its checksums while entered, if ``data.check_staged`` asks for it.

    Readers then raise ``DataError`` for a file that differs from what was staged.
    """
    return FirstReads(Path(config.data.root)).checking() if config.data.check_staged else nullcontext()


def files_of_split(application: Application, config: RunConfig, split: str) -> list[Path]:
    """Files of one split, as the application's ``data.files_of_split`` says; otherwise every file below its folder.

    Raises ``DataError`` if the application has no ``files_of_split`` and there is no such folder, or nothing in it.
    """
    data = application.module("data")
    if hasattr(data, "files_of_split"):
        return list(data.files_of_split(config, split))
    folder = Path(config.data.root) / split
    expected = expected_files(folder)
    if expected is not None:
        return sorted(expected)
    if not folder.is_dir():
        change = f"add files_of_split(config, split), which lists the files of a split, to {application.package}.data"
        raise DataError(folder, "no such folder", change)
    destination = staged_destination(folder)
    if destination is not None:  # what staging did not put there does not belong to the dataset
        here = folder.resolve()
        staged = [destination / name for name in load_records(destination).position]
        files = [folder / path.relative_to(here) for path in staged if path.is_relative_to(here)]
    else:
        entries = ((where, name) for where, _, names in os.walk(folder) for name in names)
        files = [Path(where) / name for where, name in entries if not name.startswith(".")]
    if not files:
        raise DataError(folder, "holds no file" if destination is None else "holds no staged file", HINT)
    return sorted(files)


def dataset_files(application: Application, config: RunConfig) -> list[Path]:
    """Every file that a run reads, once: those that all samples share, then training and validation samples."""
    data = application.module("data")
    shared = list(data.shared_files(config)) if hasattr(data, "shared_files") else []
    samples = [path for split in SPLITS for path in files_of_split(application, config, split)]
    return list(dict.fromkeys(shared + samples))
