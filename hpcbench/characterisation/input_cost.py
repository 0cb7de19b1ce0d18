"""What a sample costs to read: its bytes from the application, and bytes, calls and seconds of the suite's readers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch

from hpcbench.application import Application
from hpcbench.characterisation.model import InputData, Reading
from hpcbench.characterisation.tiers import tier_of
from hpcbench.characterisation.timing import timed
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import files_of_split
from hpcbench.data.loader import stack
from hpcbench.data.spatial_part import part_of
from hpcbench.parallel.spatial.convolution import Axes
from hpcbench.planning.dataset_size import dataset_size, sample_size
from hpcbench.train.build import open_data
from hpcbench.train.task import Task

T = TypeVar("T")

MOST_SAMPLES = 16
PASSES = 3
"""Passes over them whose times are taken; the median counts."""


def describe_input(
    application: Application, config: RunConfig, device: torch.device, prepared_bytes: float, *, read: bool,
    axes: Axes | None = None,
) -> InputData:  # fmt: skip
    """The dataset of ``config`` and, where it is available and ``read`` is true, what reading a sample costs.

    With ``axes`` several ranks share a sample, and what is read is this rank's part, if a training reads parts.

    Raises ``InputError`` for a dataset that cannot be opened.
    """
    data = config.data
    words = [str(getattr(data, name)) for name in ("format", "compression") if hasattr(data, name)]
    form = ", ".join(word for word in words if word != "none")
    dataset, size = dataset_size(application, config), sample_size(application, config)
    stored = float(size.total) or None if size is not None else None
    files = None
    if data.root:
        training, _ = open_data(application, config)
        files = round(len(files_of_split(application, config, "train")) / max(1, len(training)))
    if dataset is not None and dataset.train_samples:
        stored = dataset.train_bytes / dataset.train_samples or None
    transform = config.staging.transform
    landed = sample_size(application, config, transform) if config.staging.destination and transform else None
    return InputData(
        form, None if dataset is None else dataset.train_samples or None,
        None if dataset is None else dataset.validation_samples, stored, files, prepared_bytes,
        measure_reading(application, config, device, axes) if read and data.root else None,
        None if landed is None else float(landed.total) or None,
    )  # fmt: skip


def measure_reading(
    application: Application, config: RunConfig, device: torch.device, axes: Axes | None = None
) -> Reading:  # fmt: skip
    """Read a few samples, and time reading them again: from the page cache, so decoding is what is left.

    Raises ``InputError`` or ``DataError`` for a dataset that cannot be read.
    """
    training, _ = open_data(application, config)
    task: Task = application.module("task").build_task(config)
    task.load(config)
    if axes and config.data.loader == "torch" and task.reads_parts(training=True):
        part = part_of(training, axes)
        training = training if part is None else part
    samples = min(MOST_SAMPLES, len(training))
    batch = min(samples, config.train.local_batch_size)
    samples_read = [training[index] for index in range(samples)]
    first, counted = with_io(lambda: read_seconds(training, samples))
    again = [first, *(read_seconds(training, samples) for _ in range(PASSES - 1))]
    read_s, processor_s = (median(seconds) for seconds in zip(*again, strict=True))
    inputs, targets = (
        stack([torch.as_tensor(sample[part]) for sample in samples_read[:batch]]).to(device) for part in (0, 1)
    )
    prepare_s = timed(lambda: task.prepare(inputs, targets, torch.arange(batch)), device)
    return Reading(
        samples, counted[0] / samples if counted else None, counted[1] / samples if counted else None,
        read_s / samples, processor_s / samples, prepare_s / batch, tier_of(Path(config.data.root)),
    )  # fmt: skip


def read_seconds(training: Any, samples: int) -> tuple[float, float]:
    """Wall and processor time of reading and decoding the first ``samples``, one after another."""
    wall, processor = time.perf_counter(), time.process_time()
    for index in range(samples):
        training[index]
    return time.perf_counter() - wall, time.process_time() - processor


def with_io(work: Callable[[], T]) -> tuple[T, list[int] | None]:
    """The result of ``work``, with the bytes and calls of ``io_counts`` that it took: two more looks cost as much."""
    earlier, before = io_counts(), io_counts()
    result = work()
    after = io_counts()
    if earlier is None or before is None or after is None:
        return result, None
    return result, [max(0, end - 2 * start + first) for first, start, end in zip(earlier, before, after, strict=True)]


def io_counts(path: Path = Path("/proc/self/io")) -> tuple[int, int] | None:
    """Bytes that this process has read, and system calls for them; ``None`` where the system does not count them."""
    try:
        values = dict(line.split(": ") for line in path.read_text(encoding="ascii").splitlines())
        return int(values["rchar"]), int(values["syscr"])
    except (OSError, KeyError, ValueError):
        return None
