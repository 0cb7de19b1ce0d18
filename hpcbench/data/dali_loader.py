"""Loads given batches of samples, in a given order, with NVIDIA DALI (https://docs.nvidia.com/deeplearning/dali).

A pipeline is built for every call of ``load``, since the order is ours and DALI's TFRecord reader takes its files when
it is built. npy files are fed to a lasting graph by name, batch for batch; the TFRecord reader is given the files of
all batches in order. It knows one batch size, so shorter batches are filled up with their last sample and cut after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.dali_samples import DaliSamples, StoredArray, index_file
from hpcbench.data.sampler import Indices
from staging.errors import InputError

Batch = tuple[Tensor, Tensor]
AHEAD = 2
"""Batches that DALI prepares ahead of the one in use."""


def check_dali(application: Application, config: RunConfig) -> None:
    """Raise ``InputError`` where ``data.loader dali`` cannot work: not installed, or files that DALI cannot read."""
    if not has_dali():
        raise InputError('data.loader dali needs NVIDIA DALI; pip install "hpcbench[dali]", or use --data.loader torch')
    for split in ("train", "validation"):
        describe(application, config, split)


def has_dali() -> bool:
    """Whether DALI is installed; it is not imported."""
    return find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None


def describe(application: Application, config: RunConfig, split: str) -> DaliSamples:
    """What the application says of the files of a split."""
    data = application.module("data")
    if not hasattr(data, "dali_samples"):
        hint = f"add dali_samples(config, split) to {application.package}.data, or use --data.loader torch"
        raise InputError(f"data.loader dali: {application.name} does not say how DALI reads its files; {hint}")
    samples: DaliSamples = data.dali_samples(config, split)
    return samples


class DaliLoader:
    """Loads batches of one dataset with DALI's threads; on a CUDA device they arrive there.

    ``samples`` is the torch dataset of the same files: it finds out which file DALI could not read. ``described`` is
    called at the first ``load``, when staged files are there.
    """

    def __init__(
        self, samples: Any, described: Callable[[], DaliSamples], threads: int, device: torch.device | None = None
    ) -> None:
        self.samples = samples
        self.threads = max(1, threads)
        self.device = device if device is not None and device.type == "cuda" else torch.device("cpu")
        self._describe = described
        self._described: DaliSamples | None = None

    @property
    def described(self) -> DaliSamples:
        """What the application says of the files."""
        if self._described is None:
            self._described = self._describe()
        return self._described

    def load(self, batches: Sequence[Indices]) -> Iterator[Batch]:
        """Batches of (inputs, targets) in the given order; raises ``DataError`` naming a file that is bad."""
        filled = [indices for indices in batches if len(indices)]
        read = self._read(filled) if filled else iter(())
        for indices in batches:
            yield self.described.finish(*(next(read) if len(indices) else self._empty()))

    def _read(self, batches: list[Indices]) -> Iterator[Batch]:
        """Batches as stored; none is empty."""
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        number = 0
        try:
            pipeline = build_pipeline(self.described, batches, self.threads, self.device)
            pipeline.schedule_run()  # fills the queue: AHEAD batches
            for number, indices in enumerate(batches):
                inputs, targets, *checks = (as_torch(output) for output in pipeline.outputs(cuda_stream=stream))
                if number + AHEAD < len(batches):
                    pipeline.schedule_run()
                read = inputs[: len(indices)], targets[: len(indices)]
                self._check(read, checks, indices)
                yield read
        except RuntimeError as error:
            self._blame(batches[number : number + AHEAD + 1])
            reason = next((line for line in str(error).splitlines()[::-1] if line and "C++ context" not in line), "")
            first = self.described.files[int(batches[number][0])][0]
            raise InputError(f"DALI cannot read {first} and what follows ({reason}); try --data.loader torch") from None

    def _check(self, read: Batch, checks: list[Tensor], indices: Indices) -> None:
        """Look closer at a batch whose arrays are not as described, or whose values may not be."""
        arrays = (self.described.inputs, self.described.targets)
        for tensor, array in zip(read, arrays, strict=True):
            if tensor.shape[1:] != array.shape or tensor.dtype != getattr(torch, array.dtype):
                raise RuntimeError(f"{tensor.dtype} {tuple(tensor.shape[1:])} where {array} is expected")
        bounds = [array.largest for array in arrays for bound in (array.finite, array.largest is not None) if bound]
        for figures, bound in zip(checks, bounds, strict=True):
            fine = figures.isfinite() if bound is None else figures <= bound
            if not bool(fine.all()):
                self._blame([indices])

    def _blame(self, batches: list[Indices]) -> None:
        """Read samples as the torch loader does, which raises ``DataError`` for the first bad one."""
        for indices in batches:
            for index in indices:
                self.samples[int(index)]

    def _empty(self) -> Batch:
        arrays = (self.described.inputs, self.described.targets)
        inputs, targets = (
            torch.empty((0, *array.shape), dtype=getattr(torch, array.dtype), device=self.device) for array in arrays
        )
        return inputs, targets


def build_pipeline(described: DaliSamples, batches: list[Indices], threads: int, device: torch.device) -> Any:
    """A pipeline that gives the batches in order, and then one small output for every check of values."""
    from nvidia.dali import Pipeline

    device_id = None
    if device.type == "cuda":
        device_id = torch.cuda.current_device() if device.index is None else device.index
    pipeline = Pipeline(
        batch_size=max(len(indices) for indices in batches),
        num_threads=threads,
        device_id=device_id,
        prefetch_queue_depth=AHEAD,
        exec_dynamic=True,  # its outputs are not written again while torch holds them
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
    from nvidia.dali import fn, types

    names = ([encoded(described, indices, part) for part in (0, 1)] for indices in batches)
    parts = fn.external_source(source=names, num_outputs=2, batch=True, dtype=types.UINT8, ndim=1)
    return [fn.decoders.numpy(fn.io.file.read(part, dont_use_mmap=True)) for part in parts]


def encoded(described: DaliSamples, indices: Indices, part: int) -> list[NDArray[np.uint8]]:
    """File names of a batch, as DALI takes them."""
    return [np.frombuffer(bytes(described.files[int(index)][part]), np.uint8) for index in indices]


def tfrecord_arrays(described: DaliSamples, batches: list[Indices]) -> list[Any]:
    """Graph that reads TFRecord files, listed in the order of the batches, through their indices."""
    from nvidia.dali import fn, tfrecord, types

    size = max(len(indices) for indices in batches)
    files: list[Path] = []
    for indices in batches:
        padded = [*indices, *[indices[-1]] * (size - len(indices))]
        files += [described.files[int(index)][0] for index in padded]
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
    )
    kinds = {"int16": types.INT16, "uint8": types.UINT8, "float32": types.FLOAT}
    return [
        fn.reinterpret(read[name], dtype=kinds[array.dtype], shape=list(array.shape))
        for name, array in zip(described.features, arrays, strict=True)
    ]


def value_checks(outputs: list[Any], arrays: tuple[StoredArray, StoredArray]) -> list[Any]:
    """Graph for a number per sample and check: a sum, which shows what is not finite, or a maximum."""
    from nvidia.dali import fn

    checks = []
    for output, array in zip(outputs, arrays, strict=True):
        if array.finite:
            checks.append(fn.reductions.sum(output))
        if array.largest is not None:
            checks.append(fn.reductions.max(output))
    return checks


def as_torch(output: Any) -> Tensor:
    """A batch that DALI made, shared with torch without a copy."""
    return torch.from_dlpack(output.as_tensor())
