"""How many bytes a dataset takes, measured where it lies or computed from its form.

Imports no torch unless the dataset lies on this machine.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from hpcbench.application import Application, find_application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import SPLITS, files_of_split
from hpcbench.data.sample_size import SampleSize
from hpcbench.planning.settings_key import config_of_key, settings_key
from hpcbench.results.stored_bytes import files_bytes
from staging.errors import DataError, InputError

Basis = Literal["files", "settings", "preset"]


@dataclass(frozen=True)
class DatasetSize:
    """Samples and bytes of the splits of a dataset."""

    train_samples: int
    validation_samples: int
    train_bytes: int
    validation_bytes: int
    basis: Basis
    """What gives the numbers: files, settings of ``data``, or what `hpcbench data simulate` makes with the preset."""

    @property
    def total(self) -> int:
        """Bytes of both splits."""
        return self.train_bytes + self.validation_bytes

    @property
    def words(self) -> str:
        """Where the numbers come from, in words."""
        return {
            "files": "as the files are",
            "settings": f"for {self.train_samples:,} + {self.validation_samples:,} samples",
            "preset": f"for the {self.train_samples:,} + {self.validation_samples:,} samples that the preset simulates",
        }[self.basis]


def dataset_size(application: Application, config: RunConfig) -> DatasetSize | None:
    """The size of the dataset of ``config`` as it is stored; ``None`` where it is unknown.

    It comes from the files where ``data.root`` is a folder on this machine, else from the number of samples that
    ``config.data`` asks for, or that the preset simulates, and the application's size of a sample.
    """
    if is_here(config):
        return measured_size(application, config)
    sample = sample_size(application, config)
    if sample is None:
        return None
    data, simulated = config.data, config.simulate
    train = data.train_samples or simulated.train_samples
    validation = data.validation_samples or simulated.validation_samples
    known = data.train_samples is not None and data.validation_samples is not None
    basis: Basis = "settings" if known else "preset"
    return DatasetSize(train, validation, train * sample.total, validation * sample.total, basis)


def is_here(config: RunConfig) -> bool:
    """Whether ``data.root`` is a folder on this machine."""
    return bool(config.data.root) and Path(config.data.root).is_dir()


def measured_size(application: Application, config: RunConfig) -> DatasetSize | None:
    """The size of the files, of many an estimate; ``None`` where they can't be found or read, as a run will report."""
    folders = [Path(config.data.root) / split for split in SPLITS]
    try:
        changed = tuple(folder.stat().st_mtime_ns for folder in folders)
    except OSError:
        return None
    return measured(application.name, settings_key(config, ("data", "staging", "simulate")), changed)


@lru_cache(maxsize=64)
def measured(name: str, settings: str, changed: tuple[int, ...]) -> DatasetSize | None:
    """See ``measured_size``; cached, since listing a dataset takes long.

    ``changed`` holds the modification times of its folders.
    """
    application = find_application(name)
    config = config_of_key(application, settings)
    try:
        sizes = {split: files_bytes(files_of_split(application, config, split)) for split in SPLITS}
        samples = {split: len(application.module("data").open_split(config, split)) for split in SPLITS}
    except (InputError, DataError, OSError):
        return None
    return DatasetSize(samples["train"], samples["validation"], sizes["train"], sizes["validation"], "files")


def sample_size(application: Application, config: RunConfig, transform: str = "") -> SampleSize | None:
    """Bytes of a sample in the form of ``config.data``, or in the form that ``transform`` makes of it.

    ``None`` where the application does not say, or where it is unknown what the transform makes. Raises ``InputError``
    for a transform whose result the application cannot read.
    """
    if not application.has("sizes"):
        return None
    data = copy.deepcopy(config.data)
    if transform:
        module = application.module("data")
        if not hasattr(module, "staged_form"):
            return None
        module.staged_form(data, transform)
    size: SampleSize = application.module("sizes").sample_size(data)
    return size
