"""Builds the parts of a run from its configuration: training and validation split, model and optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hpcbench.application import Application
from hpcbench.config.schema import RunConfig
from hpcbench.data.files import checked_reads
from hpcbench.data.loader import first_samples
from hpcbench.data.sampler import Shards, epoch_sizes
from hpcbench.optim.registry import create_optimizer, parameter_kinds
from hpcbench.parallel.padded_convolution import pad_short_inputs
from hpcbench.parallel.precision import PrecisionPolicy, resolve_precision
from hpcbench.train.task import Task
from staging.errors import InputError
from staging.units import counted


def open_data(application: Application, config: RunConfig) -> tuple[Any, Any]:
    """The two splits, listed but not read, except that files which all samples share may be."""
    if not config.data.root:
        make = f"hpcbench data simulate {application.name} --preset {config.preset or 'smoke'} --out DIR"
        hint = f" (`{make}` makes one)" if application.has("simulate") else ""
        raise InputError(f"no dataset: set --data.root DIR{hint}")
    if config.data.loader == "dali":
        from hpcbench.data.dali_loader import check_dali

        check_dali(application, config)
    data = application.module("data")
    with checked_reads(config):
        training, validation = data.open_split(config, "train"), data.open_split(config, "validation")
    return (
        first_samples(training, config.data.train_samples, "data.train_samples"),
        first_samples(validation, config.data.validation_samples, "data.validation_samples"),
    )


def check_batch(config: RunConfig, samples: int, ranks: int) -> None:
    """Refuse a batch of real or simulated ``ranks`` that the training set cannot fill once, or as often as asked."""
    batch = config.train.local_batch_size * config.train.accumulation * ranks
    if batch > samples:
        lower = "train.local_batch_size" + (" or train.accumulation" if config.train.accumulation > 1 else "")
        raise InputError(
            f"global batch of {batch} (train.local_batch_size {config.train.local_batch_size} x train.accumulation "
            f"{config.train.accumulation} x {counted(ranks, 'rank')}) is larger than the training set of "
            f"{counted(samples, 'sample')}; lower {lower}, or use more samples"
        )
    if config.staging.placement == "replicate":  # otherwise this is checked once the shards are known
        sizes = epoch_sizes(samples, ranks, config.train.local_batch_size, config.data.last_batch)
        check_evaluations(config, len(sizes))


def check_shards(config: RunConfig, shards: Shards) -> None:
    """Refuse shards with too few steps, and a shard too small for any batch where every batch must be full."""
    batch = config.train.local_batch_size
    micro_batches = epoch_sizes(len(shards.home), len(shards.node), batch, config.data.last_batch, shards)
    if micro_batches:
        check_evaluations(config, len(micro_batches))
    else:
        sizes = [
            (len(shards.samples_on(node)), len(shards.ranks_on(node)) * batch) for node in sorted(set(shards.node))
        ]
        samples, needed = min(sizes, key=lambda size: size[0] / size[1])
        raise InputError(
            f"a node has {samples} training samples where its ranks take {needed} at a time; "
            "lower train.local_batch_size, or set data.last_batch keep"
        )


def check_evaluations(config: RunConfig, micro_batches: int) -> None:
    """Raise ``InputError`` for more evaluations in an epoch than it has optimizer steps."""
    wanted, steps = config.train.evaluations_per_epoch, -(-micro_batches // config.train.accumulation)
    if wanted > steps:
        raise InputError(
            f"train.evaluations_per_epoch ({wanted}) is more than the {steps} optimizer step"
            f"{'' if steps == 1 else 's'} of an epoch; lower it, or use smaller batches or more samples"
        )


def build_model(application: Application, config: RunConfig, device: torch.device, seed: int) -> nn.Module:
    """The model on its device, in the run's memory layout, with weights that the seed determines."""
    torch.manual_seed(seed)
    model: nn.Module = application.module("model").build_model(config)
    model = model.to(device)
    if config.train.precision == "64-true":
        model = model.double()
    if device.type == "cpu" and resolve_precision(config.train.precision, device).startswith("bf16"):
        pad_short_inputs(model)
    if config.train.channels_last:
        for parameter in model.parameters():
            layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(parameter.dim())
            if layout is not None:
                parameter.data = parameter.data.contiguous(memory_format=layout)
    return model


def build_optimizer(
    config: RunConfig, task: Task, model: nn.Module, device: torch.device, precision: PrecisionPolicy, *,
    capturable: bool = False,
) -> Any:  # fmt: skip
    """The optimizer over the task's groups, in the precision's gradient scaler; ``capturable`` by a graph."""
    groups, kinds = task.parameter_groups(model), parameter_kinds(model)
    return precision.wrap(create_optimizer(config.optim, groups, device, capturable, kinds))
