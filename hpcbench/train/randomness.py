"""Counter-based random numbers: every draw is a function of seed, epoch, sample and stream, on any device.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): a
bijective mixing function on 64 bits applied to a counter that advances by the golden ratio. It is written in wrapping
int64 arithmetic, so that it gives the same bits on every device and never waits for one.
"""

from __future__ import annotations

import torch
from torch import Tensor

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB


def sample_keys(seed: int, epoch: int, indices: Tensor) -> Tensor:
    """64 random bits for each sample: (batch,) int64, on the device of ``indices`` (batch,) int64.

    They depend only on ``seed``, ``epoch`` and the sample's index in the dataset, and so not on the order, batch,
    worker or rank in which the sample is used.
    """
    base = _mix_number(_mix_number(seed + GOLDEN) + (epoch + 1) * GOLDEN)
    return _mix(_steps(indices) + _signed(base))


def seed_micro_batch(seed: int, epoch: int, number: int, rank: int, device: torch.device) -> None:
    """Seed torch's own generators, from which torch's layers draw, for micro-batch ``number`` of an epoch.

    ``rank`` is the data-parallel one. What such layers draw depends on nothing that came before in this process.
    ``torch.manual_seed`` would also look for devices that the run does not use, which takes ten times as long.
    """
    bits = 0
    for integer in (seed, epoch, number, rank):
        bits = _mix_number(bits + (integer + 1) * GOLDEN)
    torch.default_generator.manual_seed(bits)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(bits)


def uniform(keys: Tensor, stream: int, count: int) -> Tensor:
    """``count`` uniform numbers in [0, 1) for each key: (batch, count) float32, from ``keys`` (batch,) int64.

    ``stream`` separates users of one key, such as two dropout layers. The numbers are multiples of 2**-24.
    """
    if torch.compiler.is_compiling() and keys.device.type == "cpu":
        compiled: Tensor = torch.ops.hpcbench.uniform(keys, stream, count)
        return compiled
    return _uniform(keys, stream, count)


def _uniform(keys: Tensor, stream: int, count: int) -> Tensor:
    base = _mix(keys ^ _signed(_mix_number((stream + 1) * GOLDEN)))
    counter = _steps(torch.arange(count, dtype=torch.int64, device=keys.device))
    bits = _shift_right(_mix(base[:, None] + counter), 40).float()
    return bits * 2.0**-24


# The code that torch 2.13 compiles from this for a CPU writes out of bounds if ``count`` is not a multiple of a vector
# register, and gives other numbers. So there it is an operation that is called and not compiled.
_operation = torch.library.custom_op(
    "hpcbench::uniform", _uniform, mutates_args=(), schema="(Tensor keys, int stream, int count) -> Tensor"
)
_operation.register_fake(lambda keys, stream, count: keys.new_empty((len(keys), count), dtype=torch.float32))


def _steps(counter: Tensor) -> Tensor:
    return (counter + 1) * _signed(GOLDEN)


def _mix(bits: Tensor) -> Tensor:
    bits = (bits ^ _shift_right(bits, 30)) * _signed(FIRST)
    bits = (bits ^ _shift_right(bits, 27)) * _signed(SECOND)
    return bits ^ _shift_right(bits, 31)


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """Logical shift; torch's shift of int64 copies the sign bit."""
    shifted: Tensor = (bits >> by) & ((1 << (64 - by)) - 1)
    return shifted


def _mix_number(bits: int) -> int:
    bits &= MASK
    bits = ((bits ^ (bits >> 30)) * FIRST) & MASK
    bits = ((bits ^ (bits >> 27)) * SECOND) & MASK
    return bits ^ (bits >> 31)


def _signed(bits: int) -> int:
    """The int64 with the same 64 bits."""
    return (bits & MASK) - (2**64 if bits & 2**63 else 0)
