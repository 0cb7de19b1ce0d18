"""The optimizers by name. SGD, Adam (L2 decay, as DeepCAM uses it) and AdamW (decoupled decay) are torch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer

from hpcbench.application import suggest
from hpcbench.config.schema import OptimConfig
from staging.errors import InputError

Groups = list[dict[str, Any]]
Factory = Callable[[OptimConfig, Groups, dict[str, Any]], Optimizer]


@dataclass(frozen=True)
class OptimInfo:
    """A registered optimizer; ``factory(config, groups, options)`` builds it, options being torch's own switches."""

    name: str
    description: str
    factory: Factory


def _sgd(config: OptimConfig, groups: Groups, options: dict[str, Any]) -> Optimizer:
    options = {name: value for name, value in options.items() if name != "capturable"}
    return SGD(groups, momentum=config.momentum, weight_decay=config.weight_decay, **options)


def _adam(config: OptimConfig, groups: Groups, options: dict[str, Any]) -> Optimizer:
    return Adam(groups, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay, **options)


def _adamw(config: OptimConfig, groups: Groups, options: dict[str, Any]) -> Optimizer:
    return AdamW(groups, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay, **options)


OPTIMIZERS = {
    info.name: info
    for info in (
        OptimInfo("sgd", "stochastic gradient descent with momentum, L2 decay; CosmoFlow's closed division", _sgd),
        OptimInfo("adam", "Adam (Kingma and Ba 2015) with L2 decay in the gradient", _adam),
        OptimInfo("adamw", "Adam with decoupled decay (Loshchilov and Hutter 2019)", _adamw),
    )
}


def optimizer_info(name: str) -> OptimInfo:
    """The optimizer called ``name``, or an ``InputError`` that suggests the nearest one."""
    if name not in OPTIMIZERS:
        raise InputError(f"unknown optimizer optim.name '{name}'; {suggest(name, list(OPTIMIZERS))}")
    return OPTIMIZERS[name]


def create_optimizer(
    config: OptimConfig, groups: Groups, device: torch.device | str, capturable: bool = False
) -> Optimizer:
    """Build the configured optimizer over ``groups``, in its fused form where torch has one on ``device``.

    ``capturable`` makes it fit for graph capture: the learning rate becomes a tensor on the device, to be set with
    ``set_learning_rate``. A group's own ``weight_decay`` goes before the configuration's.
    """
    info = optimizer_info(config.name)
    options: dict[str, Any] = {"lr": config.lr}
    if capturable:
        options = {"lr": torch.tensor(config.lr, device=device), "capturable": True}
    options["fused"] = _fused_works(info, config, device)
    # The groups are copied, because an optimizer fills in its defaults in place.
    return info.factory(config, [dict(group) for group in groups], options)


def _fused_works(info: OptimInfo, config: OptimConfig, device: torch.device | str) -> bool:
    """Whether torch has the fused form on ``device``, which some versions tell only in the first step."""
    trial = torch.nn.Parameter(torch.zeros(1, device=device))
    trial.grad = torch.zeros_like(trial)
    try:
        info.factory(config, [{"params": [trial]}], {"lr": config.lr, "fused": True}).step()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def set_learning_rate(optimizer: Optimizer, lr: float) -> None:
    """Give every group the learning rate ``lr``; a tensor rate is filled in place, so that a captured graph sees it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr
