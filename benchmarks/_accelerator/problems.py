"""Both applications at the published size: model, batches as stored, and files of them in the published formats."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hpcbench.application import Application, find_application
from hpcbench.config.resolve import resolve
from hpcbench.data.loader import BatchLoader, stack
from hpcbench.train.task import Task
from staging.formats.hdf5 import write_datasets
from staging.formats.npy import write_array

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
FILES, LINKS = 8, 256
"""Files that are written, and names that link to them: enough for a training set of sufficient length."""
Batch = tuple[Tensor, ...]


@dataclass
class Problem:
    """An application, its configuration at the measured size, and its task."""

    application: Application
    config: Any
    task: Task
    root: Path

    def model(self, device: torch.device, channels_last: bool) -> nn.Module:
        """Return the network on the device, the same at every call."""
        torch.manual_seed(0)
        model: nn.Module = self.application.module("model").build_model(self.config).to(device)
        for parameter in model.parameters():
            if channels_last and parameter.dim() in LAYOUTS:
                parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[parameter.dim()])
        return model

    def batch(self, size: int) -> Batch:
        """Return a batch of random samples as the loader gives it: channels-last, as stored."""
        generator = np.random.default_rng(1)
        samples = [random_sample(self.application.name, self.config, generator) for _ in range(size)]
        return tuple(stack([torch.as_tensor(sample[part]) for sample in samples]) for part in (0, 1))

    def batches(self, size: int, workers: int, pin: bool) -> Iterator[Batch]:
        """Yield batches from files, endlessly."""
        self.write_files()
        samples = self.application.module("data").open_split(self.config, "train")
        loader = BatchLoader(samples, workers, pin=pin)
        order = np.resize(np.arange(len(samples)), 4 * len(samples) // size * size).reshape(-1, size)
        for _ in cycle((0,)):
            yield from loader.load(list(order))

    def write_files(self) -> None:
        """Write a few files of random samples, each under many names, unless the folder is already there."""
        if self.root.is_dir():
            return
        partial = self.root.with_name(f"{self.root.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        generator = np.random.default_rng(2)
        name, form = self.application.name, self.config.data.format
        counts = {"train": (FILES, LINKS), "validation": (1, FILES)}

        def sample(split: str, number: int) -> list[Path]:
            return with_labels(name, form, partial / split / file_name(name, form, number))

        for split, (written, _) in counts.items():
            (partial / split).mkdir(parents=True)
            for number in range(written):
                write_sample(name, self.config, sample(split, number), generator)
        if name == "deepcam":  # before more names are made: a file would be read again under each of them
            self.application.module("simulate").finish(self.config, partial)
        for split, (written, names) in counts.items():
            for number in range(written, names):
                for source, path in zip(sample(split, number % written), sample(split, number), strict=True):
                    os.link(source, path)
        partial.rename(self.root)


def problem(name: str, smoke: bool, settings: dict[str, Any] | None = None) -> Problem:
    """Return the application at the published size, or a tiny one for a smoke run."""
    root = Path(os.environ["ACCELERATOR_FOLDER"]) / f"{name}-{(settings or {}).get('data.format', 'published')}"
    overrides: dict[str, Any] = {"data.root": str(root), "train.target": None}
    if name == "cosmoflow":
        overrides |= {"data.compression": "none", "data.augment": False, "model.dropout": 0.0}
    application = find_application(name)
    config = resolve(application, "smoke" if smoke else "mlperf", overrides={**overrides, **(settings or {})})
    task = application.module("task").build_task(config)
    if name == "deepcam":
        task.set_range(torch.zeros(16), torch.ones(16))
    return Problem(application, config, task, root)


def random_sample(name: str, config: Any, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Counts of about one per cell and four labels, or fields in [0, 1] and a class per pixel, as in the datasets."""
    data = config.data
    if name == "cosmoflow":
        counts = generator.poisson(1.0, (*(data.sample_size,) * 3, data.channels)).astype(np.int16)
        labels = generator.uniform(-1, 1, 4).astype(np.float32)
        return torch.from_numpy(counts).permute(3, 0, 1, 2), torch.from_numpy(labels)
    fields = generator.random((data.height, data.width, 16), dtype=np.float32)
    labels = generator.choice(3, (data.height, data.width), p=(0.98, 0.005, 0.015)).astype(np.uint8)
    return torch.from_numpy(fields).permute(2, 0, 1), torch.from_numpy(labels)


def file_name(name: str, form: str, number: int) -> str:
    """Name a file as the published ones are named, or those that DALI reads."""
    if name == "cosmoflow":
        return f"{number:05d}_data.npy" if form == "npy" else f"{number:05d}.tfrecord"
    suffix = "npy" if form == "npy" else "h5"
    return f"data-{1996 + number // 336}-{number // 28 % 12 + 1:02d}-{number % 28 + 1:02d}-00-0.{suffix}"


def with_labels(name: str, form: str, path: Path) -> list[Path]:
    """Return all files of the sample whose inputs are at ``path``."""
    if form != "npy":
        return [path]
    label = path.name.replace("_data", "_label") if name == "cosmoflow" else path.name.replace("data-", "label-")
    return [path, path.with_name(label)]


def write_sample(name: str, config: Any, paths: list[Path], generator: np.random.Generator) -> None:
    """Write a random sample in the published format, or as the arrays that DALI reads."""
    inputs, targets = random_sample(name, config, generator)
    stored = np.ascontiguousarray(inputs.movedim(0, -1).numpy())
    if config.data.format == "npy":
        for path, array in zip(paths, (stored, targets.numpy()), strict=True):
            write_array(path, array)
    elif name == "cosmoflow":
        from apps.cosmoflow.samples import write_sample as write

        write(paths[0], stored, targets.numpy(), config.data)
    else:
        labels = targets.numpy().astype(np.float32)
        write_datasets(paths[0], {"climate/data": stored, "climate/labels_0": labels, "climate/labels_1": labels})
