"""The shapes of a batch from the first sample of a dataset, for applications that do not give them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import checked_reads
from hpcbench.data.loader import BatchReader
from hpcbench.planning.settings_key import config_of_key, settings_key
from hpcbench.train.build import open_data
from staging.errors import InputError

GROUPS = ("data", "model", "train")
"""Groups of settings that may determine the shapes."""


def shapes_of_sample(application: Application, config: RunConfig, samples: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of ``samples`` samples as model and loss take them, on the meta device.

    Raises ``InputError`` where no dataset is named.
    """
    if not config.data.root:
        raise InputError(
            f"{application.name} has no module 'shapes', so its shapes are taken from a sample; set --data.root DIR, "
            f"or write the module, by hand or with `hpcbench app shapes {application.name} --data.root DIR`"
        )
    one = first_sample(application, settings_key(config, GROUPS))
    return tuple(part.new_empty((samples, *part.shape[1:])) for part in one)  # type: ignore[return-value]


@lru_cache(maxsize=16)
def first_sample(application: Application, settings: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the first training sample after ``Task.prepare``, of shape (1, ...) and without data."""
    config = config_of_key(application, settings)
    training, _ = open_data(application, config)
    task = application.module("task").build_task(config)
    task.load(config)
    with checked_reads(config):
        batch = BatchReader(training).read(np.zeros(1, np.int64))
    inputs, targets = task.prepare(*batch, None)
    return torch.empty_like(inputs, device="meta"), torch.empty_like(targets, device="meta")
