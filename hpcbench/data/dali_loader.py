"""Loads given batches of samples, in a given order, with NVIDIA DALI (https://docs.nvidia.com/deeplearning/dali).

Every call of ``load`` builds a pipeline, since the suite sets the order and DALI's TFRecord reader takes its files when
it is built. A graph reads npy files by the names it is fed, batch by batch; the TFRecord reader gets the files of all
batches in order. It has one batch size, so shorter batches are padded with their last sample and cut afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.dali_samples import DaliSamples, StoredArray, check_index, has_dali, index_file
from hpcbench.data.sampler import Indices
from staging.errors import InputError
from staging.formats.regular import refuse_special

Batch = tuple[Tensor, Tensor]
AHEAD = 2
"""Batches that DALI prepares ahead of the one in use, unless the configuration sets another number."""
BATCHES_BEHIND = 4
"""Batches after which the host looks at values that a device found: steps queue up, and the host waits for none.

``DevicePrefetcher`` lets no more of them queue up."""
READER = "samples"
"""Name of the TFRecord reader in its pipeline."""


def check_dali(application: Application, config: RunConfig) -> None:
    """Raise ``InputError`` where ``data.loader dali`` cannot work: not installed, or files that DALI cannot read.

    Files that a staging transform has yet to make are checked when they are read.
    """
    if not has_dali():
        raise InputError(
            'data.loader dali needs NVIDIA DALI; pip install "hpcbench-ml[dali]", or use --data.loader torch'
        )
    for split in () if config.staging.transform else ("train", "validation"):
        describe(application, config, split)


def describe(application: Application, config: RunConfig, split: str) -> DaliSamples:
    """What the application says about the files of a split."""
    data = application.module("data")
    if not hasattr(data, "dali_samples"):
        hint = f"add dali_samples(config, split) to {application.package}.data, or use --data.loader torch"
        raise InputError(f"data.loader dali: {application.name} does not say how DALI reads its files; {hint}")
    samples: DaliSamples = data.dali_samples(config, split)
    return samples


class DaliLoader:
    """Loads batches of one dataset with DALI's threads; with a CUDA device, the batches arrive there.

    ``samples`` is the torch dataset of the same files: it shows which file DALI could not read. ``described`` is called
    at the first ``load``, when staged files are there.
    """

    parts = False

    def __init__(
        self,
        samples: Any,
        described: Callable[[], DaliSamples],
        threads: int,
        device: torch.device | None = None,
        ahead: int | None = None,
    ) -> None:
        self.samples = samples
        self.threads = max(1, threads)
        self.ahead = AHEAD if ahead is None else ahead
        self.device = device if device is not None and device.type == "cuda" else torch.device("cpu")
        self.behind = BATCHES_BEHIND if self.device.type == "cuda" else 0
        """Batches after which the smallest values of a batch are looked at; 0: at once."""
        self._describe = described
        self._described: DaliSamples | None = None

    @property
    def described(self) -> DaliSamples:
        """What the application says about the files."""
        if self._described is None:
            self._described = self._describe()
        return self._described

    def load(self, batches: Sequence[Indices]) -> Iterator[Batch]:
        """Batches of (inputs, targets) in the given order; raises ``DataError`` that names a bad file."""
        filled = [indices for indices in batches if len(indices)]
        read = self._read(filled) if filled else iter(())
        pending: deque[list[LowestValue]] = deque()
        for indices in batches:
            batch = next(read) if len(indices) else self._empty()
            if len(indices):
                pending.append(self._lowest(batch, indices))
                self._look_at(pending, self.behind)
            yield self.described.finish(*batch)
        self._look_at(pending, 0)

    def close(self) -> None:
        """Nothing lasts between two calls of ``load``."""

    def _read(self, batches: list[Indices]) -> Iterator[Batch]:
        """Batches as stored; none is empty."""
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        number = 0
        try:
            pipeline = build_pipeline(self.described, batches, self.threads, self.device, self.ahead)
            if self.described.kind == "tfrecord":
                self._check_indices(pipeline, batches)
            pipeline.schedule_run()  # fills the queue
            for number, indices in enumerate(batches):
                inputs, targets, *checks = (as_torch(output) for output in pipeline.outputs(cuda_stream=stream))
                if number + self.ahead < len(batches):
                    pipeline.schedule_run()
                read = inputs[: len(indices)], targets[: len(indices)]
                self._check(read, checks, indices)
                yield read
        except RuntimeError as error:
            self._blame(batches[number : number + self.ahead + 1])
            reason = told(error)
            first = self.described.files[int(batches[number][0])]
            raise InputError(f"DALI cannot read {first} and what follows ({reason}); try --data.loader torch") from None

    def _check(self, read: Batch, checks: list[Tensor], indices: Indices) -> None:
        """Look closer at a batch if its arrays are not as described, or its values may not be."""
        arrays = (self.described.inputs, self.described.targets)
        for tensor, array in zip(read, arrays, strict=True):
            if tensor.shape[1:] != array.shape or tensor.dtype != getattr(torch, array.dtype):
                raise RuntimeError(f"{tensor.dtype} {tuple(tensor.shape[1:])} where {array} is expected")
        wanted = [are_fine for array in arrays for _, are_fine in checks_of(array)]
        for figures, are_fine in zip(checks, wanted, strict=True):
            if not bool(are_fine(figures).all()):
                self._blame([indices])

    def _lowest(self, read: Batch, indices: Indices) -> list[LowestValue]:
        """Start the search for the smallest values of large arrays, on the device that holds the batch."""
        arrays = (self.described.inputs, self.described.targets)
        return [
            LowestValue(tensor, array.smallest, indices, self.device if self.behind else None)
            for tensor, array in zip(read, arrays, strict=True)
            if array.smallest is not None and not array.is_small
        ]

    def _look_at(self, pending: deque[list[LowestValue]], left: int) -> None:
        """Look closer at batches with a value that is too low, except the last ``left``, whose turn comes later."""
        while len(pending) > left:
            for lowest in pending.popleft():
                if lowest.is_too_low():
                    self._blame([lowest.indices])

    def _check_indices(self, pipeline: Any, batches: list[Indices]) -> None:
        """Refuse an index without a record, or with several, which would shift every sample after it."""
        expected = len(batches) * max(len(indices) for indices in batches)
        if pipeline.reader_meta(READER)["epoch_size"] != expected:
            self._blame(batches)

    def _blame(self, batches: list[Indices]) -> None:
        """Read samples as the torch loader does, and their index files; raise ``DataError`` for the first bad file."""
        for indices in batches:
            for index in indices:
                self.samples[int(index)]
                if self.described.kind == "tfrecord":
                    check_index(index_file(self.described.files[int(index)]))

    def _empty(self) -> Batch:
        arrays = (self.described.inputs, self.described.targets)
        inputs, targets = (
            torch.empty((0, *array.shape), dtype=getattr(torch, array.dtype), device=self.device) for array in arrays
        )
        return inputs, targets


class LowestValue:
    """The smallest value of a batch, found on ``device`` and copied to the host while the device works on."""

    def __init__(self, tensor: Tensor, smallest: float, indices: Indices, device: torch.device | None) -> None:
        self.smallest, self.indices = smallest, indices
        self.lowest = tensor.min().to("cpu", non_blocking=True)
        self.event = None if device is None else torch.Event(device=device)
        if self.event is not None:
            self.event.record()

    def is_too_low(self) -> bool:
        """Whether the value is below its bound; waits until the device has found it."""
        if self.event is not None:
            self.event.synchronize()
        return self.lowest.item() < self.smallest


def dali(part: str) -> Any:
    """A module of DALI, untyped, since DALI's stubs lack much of what is used here."""
    return import_module(f"nvidia.dali.{part}")


def build_pipeline(
    described: DaliSamples, batches: list[Indices], threads: int, device: torch.device, ahead: int = AHEAD
) -> Any:
    """Build a pipeline that gives the batches in order, each followed by one small output per check of values."""
    device_id = None
    if device.type == "cuda":
        device_id = torch.cuda.current_device() if device.index is None else device.index
    pipeline = dali("pipeline").Pipeline(
        batch_size=max(len(indices) for indices in batches),
        num_threads=threads,
        device_id=device_id,
        prefetch_queue_depth=ahead,
        exec_dynamic=True,  # outputs are not overwritten while torch holds them
    )
    with pipeline:
        arrays = (npy_arrays if described.kind == "npy" else tfrecord_arrays)(described, batches)
        checks = value_checks(arrays, (described.inputs, described.targets))
        moved = arrays if device_id is None else [array.gpu() for array in arrays]
        pipeline.set_outputs(*moved, *checks)
    pipeline.build()
    return pipeline


def npy_arrays(described: DaliSamples, batches: list[Indices]) -> list[Any]:
    """Graph that reads npy files by the names it is fed."""
    fn, types = dali("fn"), dali("types")
    names = (encoded_names(described, indices) for indices in batches)
    parts = fn.external_source(source=names, num_outputs=2, batch=True, dtype=types.UINT8, ndim=1)
    return [fn.decoders.numpy(fn.io.file.read(part, dont_use_mmap=True)) for part in parts]


def encoded_names(described: DaliSamples, indices: Indices) -> tuple[list[NDArray[np.uint8]], ...]:
    """Names of the input files and of the target files of a batch, as DALI takes them."""
    assert described.targets_file is not None
    files = [described.files[int(index)] for index in indices]
    both = files, [described.targets_file(path) for path in files]
    for path in (*both[0], *both[1]):
        refuse_special(path)  # DALI would wait forever on a named pipe
    return tuple([np.frombuffer(bytes(path), np.uint8) for path in paths] for paths in both)


def tfrecord_arrays(described: DaliSamples, batches: list[Indices]) -> list[Any]:
    """Graph that reads TFRecord files, listed in the order of the batches, with the help of their index files."""
    fn, types, tfrecord = dali("fn"), dali("types"), dali("tfrecord")
    size = max(len(indices) for indices in batches)
    files: list[Path] = []
    for indices in batches:
        for index in indices:
            refuse_special(described.files[int(index)])
        padded = [*indices, *[indices[-1]] * (size - len(indices))]
        files += [described.files[int(index)] for index in padded]
    arrays = (described.inputs, described.targets)
    features = {
        name: tfrecord.VarLenFeature(tfrecord.float32, 0.0)
        if array.dtype == "float32"
        else tfrecord.FixedLenFeature((), tfrecord.string, "")
        for name, array in zip(described.features, arrays, strict=True)
    }
    read = fn.readers.tfrecord(
        path=[str(path) for path in files],
        index_path=[str(index_file(path)) for path in files],
        features=features,
        dont_use_mmap=True,
        name=READER,
    )
    kinds = {"int16": types.INT16, "uint8": types.UINT8, "float32": types.FLOAT}
    return [
        fn.reinterpret(read[name], dtype=kinds[array.dtype], shape=list(array.shape))
        for name, array in zip(described.features, arrays, strict=True)
    ]


def value_checks(outputs: list[Any], arrays: tuple[StoredArray, StoredArray]) -> list[Any]:
    """Graph that computes one number per sample and check."""
    reductions = dali("fn").reductions
    pairs = zip(outputs, arrays, strict=True)
    return [getattr(reductions, name)(output) for output, array in pairs for name, _ in checks_of(array)]


def checks_of(array: StoredArray) -> list[tuple[str, Callable[[Tensor], Tensor]]]:
    """DALI's reductions of ``array``, and which of their results are fine; a sum shows values that are not finite."""
    checks: list[tuple[str, Callable[[Tensor], Tensor]]] = []
    largest, smallest = array.largest, array.smallest
    if array.finite:
        checks.append(("sum", torch.isfinite))
    if largest is not None:
        checks.append(("max", lambda reduced: reduced <= largest))
    if smallest is not None and array.is_small:
        checks.append(("min", lambda reduced: reduced >= smallest))
    return checks


def as_torch(output: Any) -> Tensor:
    """A batch that DALI made, shared with torch without a copy."""
    shared: Tensor = from_dlpack(output.as_tensor())
    return shared


def told(error: RuntimeError) -> str:
    """The line of DALI's message that says what happened, without the traceback around it."""
    lines = [line.strip() for line in str(error).partition("encountered:")[2].splitlines()]
    return next(filter(None, [*lines, *str(error).splitlines()]), type(error).__name__)
