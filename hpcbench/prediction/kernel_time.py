"""Device time by kernels, from a characterisation: each one's roofline, at what it reached alone where that is known.

A kernel takes ratio x max(F / P, D / W, launch): operations F of products and least bytes D at the local batch, peak P
and memory bandwidth W of the machine. The ratio is what the kernel took alone over its own roofs where it was measured;
all of them are scaled so that their sum is the step that was measured on one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpcbench.characterisation.file import read_characterisation
from hpcbench.characterisation.model import PRODUCTS, TENSOR_FLOAT, Characterisation, Host, Kernel
from hpcbench.characterisation.roofline import step_roof
from hpcbench.prediction.message_time import MessageTime
from hpcbench.prediction.step_time import StepCase
from hpcbench.prediction.workload import Work, work_of
from staging.errors import InputError

Floats = NDArray[np.float64]

COMPUTED_IN = {"32-true": "float32", "bf16-mixed": "bfloat16", "16-mixed": "float16"}
PEAKS = {"float32": "peak_32bit_tflop_s", "bfloat16": "peak_16bit_tflop_s", "float16": "peak_16bit_tflop_s"}
"""The field of a machine's file with the peak of each precision."""
PEAK_TF32 = "peak_tf32_tflop_s"
"""The field for steps in float32 whose convolutions a device rounds to TF32."""


@dataclass(frozen=True)
class Kernels:
    """The kernels of a step, and what they reached."""

    kernels: tuple[Kernel, ...]
    local_batch: int
    """The local batch at which they were counted."""
    ratios: tuple[float, ...]
    """For each kernel, its time over that of its roofs."""
    launch_s: float
    """The least time that any kernel takes: that of a launch."""

    def device_s(self, case: StepCase) -> Floats:
        """Seconds of a pass of a typical rank, at the case's local batch, peak and memory bandwidth."""
        bounds = bounds_s(self.kernels, self.local_batch, float(case.local_batch), float(case.peak_flop_per_s),
                          float(case.memory_bytes_per_s), self.launch_s)  # fmt: skip
        return np.asarray(np.dot(self.ratios, bounds))


def bounds_s(
    kernels: Sequence[Kernel], measured: int, wanted: float, peak: float, bandwidth: float, launch_s: float
) -> Floats:
    """The least seconds of all executions of each kernel in a step with the local batch ``wanted``."""
    scale = wanted / measured
    bounds = []
    for kernel in kernels:
        flop = kernel.fixed_flop + (kernel.flop - kernel.fixed_flop) * scale
        moved = kernel.fixed_bytes + (kernel.bytes - kernel.fixed_bytes) * scale
        least = max(moved / bandwidth, launch_s)
        if kernel.kind in PRODUCTS:
            least = max(least, flop / peak)
        bounds.append(kernel.count * least)
    return np.array(bounds)


class Characterised(NamedTuple):
    """What a characterisation gives to a prediction."""

    kernels: Kernels
    work: Work
    peak: str
    """The field of a machine's file with the peak of its precision."""
    messages: MessageTime | None
    """Unset for a single rank."""
    host: Host
    """Where it was measured."""


def kernels_of(path: Path) -> Characterised:
    """Kernels, counts and messages of the characterisation in a file.

    Raises ``InputError`` for one that does not give the time of a step.
    """
    characterisation = read_characterisation(path)
    work_of(characterisation.application)
    where = f"--characterization {path}"
    precision = COMPUTED_IN.get(characterisation.precision)
    if precision is None:
        raise InputError(
            f"{where} is of precision {characterisation.precision}; characterise in one of {', '.join(COMPUTED_IN)}"
        )
    if characterisation.accumulation != 1:
        raise InputError(
            f"{where} accumulates {characterisation.accumulation} passes; characterise with train.accumulation 1"
        )
    if (sharing := characterisation.sharing) > 1:
        raise InputError(
            f"{where} counts one of {sharing} ranks that share each sample, and a prediction gives each rank whole "
            "samples; characterise with parallel.spatial 1"
        )
    compute, memory = characterisation.roof("compute", precision), characterisation.roof("memory")
    peak, rounded = PEAKS[precision], step_roof(characterisation)
    if rounded is not None and rounded.name == TENSOR_FLOAT:
        compute, peak = rounded, PEAK_TF32
    if compute is None or memory is None or not characterisation.steps:
        raise InputError(f"{where} has no measured roofs and steps (--counts-only); characterise without that option")
    launch = characterisation.roof("launch")
    launch_s = 0.0 if launch is None else launch.value
    bounds = bounds_s(
        characterisation.kernels,
        characterisation.local_batch,
        characterisation.local_batch,
        compute.value,
        memory.value,
        launch_s,
    )
    alone = np.array([(kernel.alone_s or 0.0) * kernel.count for kernel in characterisation.kernels])
    taken = np.where(alone > 0, alone, bounds)
    scale = alone_step_s(characterisation) / float(taken.sum())
    ratios = tuple((scale * taken / bounds).tolist())
    return Characterised(
        Kernels(characterisation.kernels, characterisation.local_batch, ratios, launch_s),
        counted_work(characterisation, where), peak, MessageTime.of(characterisation), characterisation.host,
    )  # fmt: skip


def alone_step_s(characterisation: Characterisation) -> float:
    """The measured step on the fewest ranks."""
    return min(characterisation.steps, key=lambda step: step.ranks).median_s


def counted_work(characterisation: Characterisation, where: str) -> Work:
    """The counts of a characterisation, per sample. Raises ``InputError`` where the dataset is not known."""
    data, batch = characterisation.input, characterisation.local_batch
    if data.train_samples is None or data.validation_samples is None or data.stored_bytes is None:
        raise InputError(f"{where} does not tell the samples of the dataset and their bytes; give it --data.root")
    return Work(
        application=characterisation.application, flop=characterisation.flop / batch,
        useful_flop=characterisation.useful_flop, memory_bytes=characterisation.bytes / batch,
        footprint_bytes=max(characterisation.footprint.peak / batch, 1.0), parameters=characterisation.parameters,
        train_samples=data.train_samples, validation_samples=data.validation_samples,
        stored_bytes=round(data.stored_bytes), landed_bytes=round(data.stored_bytes), source=where,
        decoding_s=None if data.reading is None or data.reading.processor_s <= 0 else data.reading.processor_s,
    )  # fmt: skip
