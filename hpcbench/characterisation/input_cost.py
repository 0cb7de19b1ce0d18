"""What a sample costs to read: its bytes from the application, and bytes, calls and seconds of the suite's readers."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from hpcbench.application import Application
from hpcbench.characterisation.model import InputData, Reading
from hpcbench.characterisation.timing import synchronizer
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import files_of_split
from hpcbench.data.loader import stack
from hpcbench.planning.dataset_size import dataset_size, sample_size
from hpcbench.train.build import open_data
from hpcbench.train.task import Task

MOST_SAMPLES = 16


def describe_input(
    application: Application, config: RunConfig, device: torch.device, prepared_bytes: float, *, read: bool
) -> InputData:  # fmt: skip
    """The dataset of ``config`` and, where it is available and ``read`` is true, what reading a sample costs.

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
    return InputData(
        form, None if dataset is None else dataset.train_samples or None,
        None if dataset is None else dataset.validation_samples, stored, files, prepared_bytes,
        measure_reading(application, config, device) if read and data.root else None,
    )  # fmt: skip


def measure_reading(application: Application, config: RunConfig, device: torch.device) -> Reading:
    """Read a few samples twice and time the second read: it comes from the page cache, so decoding is what is left.

    Raises ``InputError`` or ``DataError`` for a dataset that cannot be read.
    """
    training, _ = open_data(application, config)
    task: Task = application.module("task").build_task(config)
    task.load(config)
    samples = min(MOST_SAMPLES, len(training))
    batch = min(samples, config.train.local_batch_size)
    for index in range(samples):
        training[index]
    before, wall, processor = io_counts(), time.perf_counter(), time.process_time()
    samples_read = [training[index] for index in range(samples)]
    read_s, processor_s = time.perf_counter() - wall, time.process_time() - processor
    after = io_counts()
    inputs, targets = (
        stack([torch.as_tensor(sample[part]) for sample in samples_read[:batch]]).to(device) for part in (0, 1)
    )
    wait = synchronizer(device)
    task.prepare(inputs, targets, torch.arange(batch))
    wait()
    started = time.perf_counter()
    task.prepare(inputs, targets, torch.arange(batch))
    wait()
    prepare_s = time.perf_counter() - started
    counted = (
        None if before is None or after is None else [end - start for start, end in zip(before, after, strict=True)]
    )
    return Reading(
        samples, counted[0] / samples if counted else None, counted[1] / samples if counted else None,
        read_s / samples, processor_s / samples, prepare_s / batch,
    )  # fmt: skip


def io_counts(path: Path = Path("/proc/self/io")) -> tuple[int, int] | None:
    """Bytes that this process has read, and system calls for them; ``None`` where the system does not count them."""
    try:
        values = dict(line.split(": ") for line in path.read_text(encoding="ascii").splitlines())
        return int(values["rchar"]), int(values["syscr"])
    except (OSError, KeyError, ValueError):
        return None
