"""Writes the module ``shapes`` of an application that lacks it, from the first sample of a dataset."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.planning.sample_shapes import shapes_of_sample
from staging.errors import InputError

FILE = "shapes.py"
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""By the number of dimensions."""
TEXT = '''\
"""The shapes of a batch: by them the suite compiles before the clock, and plans without a dataset."""

import torch


def batch_shapes(config, samples):
    """Inputs and targets of `samples` samples, without data."""
    inputs = {inputs}
    targets = {targets}
    return inputs, targets
'''


def write_shapes_file(application: Application, config: RunConfig) -> Path:
    """Write ``shapes.py`` into the application's package; returns its path.

    Raises ``InputError`` if the package has one, if no dataset is named, or if the folder cannot be written.
    """
    path = application.folder() / FILE
    if application.has("shapes"):
        raise InputError(f"{application.name} has a module 'shapes' already ({path}); remove it to write another")
    inputs, targets = shapes_of_sample(application, config, 1)
    text = TEXT.format(inputs=as_source(inputs), targets=as_source(targets))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(
            f"{path}: cannot write there ({error.strerror}); install the package with `pip install --editable`"
        ) from None
    return path


def as_source(batch: Tensor) -> str:
    """Python that makes an empty tensor like ``batch``, with any number of samples."""
    size = ", ".join(("samples", *map(str, batch.shape[1:])))
    options = [f"dtype={batch.dtype}", 'device="meta"']
    layout = CHANNELS_LAST.get(batch.dim())
    if layout is not None and batch.is_contiguous(memory_format=layout) and not batch.is_contiguous():
        options.append(f"memory_format={layout}")
    return f"torch.empty({size}, {', '.join(options)})"
