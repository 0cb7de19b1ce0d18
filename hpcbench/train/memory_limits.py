"""Refuses, before anything is written, what cannot fit into memory, and recognizes errors of exhausted memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.machine_limits import free_memory
from staging.errors import InputError

NO_MEMORY = ("can't allocate memory", "not enough memory", "error: out of memory", "STATUS_ALLOC_FAILED")
"""Messages without a class of their own: of torch's host allocator, of the driver, which also pins memory and makes
contexts, and of cuBLAS and cuDNN."""


def check_memory(application: Application, config: RunConfig, device: torch.device, local_ranks: int) -> None:
    """Raise ``InputError`` if weights and gradients, or the inputs of one batch, exceed the memory of a rank.

    Both are less than what a run takes, so a run that is refused could not have run. Nothing is built. A spatial mesh
    and sharded states are left to ``hpcbench plan``.
    """
    parallel = config.parallel
    if parallel.shard_states or parallel.spatial != "1":
        return
    room = device_memory(device) if device.type != "cpu" else free_memory() // local_ranks
    if room is None:
        return
    where = f"the {device.type} device has" if device.type != "cpu" else "a rank of this node has"
    with torch.device("meta"):
        model: nn.Module = application.module("model").build_model(config)
    wide = 8 if config.train.precision == "64-true" else 4
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if 2 * wide * parameters > room:
        raise InputError(
            f"the model ({parameters:,} parameters) takes {gib(2 * wide * parameters)} for weights and gradients, and "
            f"{where} {gib(room)}; lower its model.* settings, or see `hpcbench plan` for parallel.shard_states"
        )
    if application.has("shapes"):
        inputs, _ = application.module("shapes").batch_shapes(config, config.train.local_batch_size)
        if wide * inputs.numel() > room:
            raise InputError(
                f"train.local_batch_size ({config.train.local_batch_size}) makes inputs of "
                f"{gib(wide * inputs.numel())}, and {where} {gib(room)}; lower it, or use smaller samples"
            )


def device_memory(device: torch.device) -> int | None:
    """Bytes of memory of an accelerator; ``None`` if torch does not report it."""
    module: Any = torch.get_device_module(device)
    return int(module.mem_get_info(device)[1]) if hasattr(module, "mem_get_info") else None


def gib(count: int) -> str:
    """``count`` bytes in GiB, as text."""
    return f"{count / 2**30:,.1f} GiB"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, of the host or of an accelerator."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)
