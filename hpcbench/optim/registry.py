"""Builds the optimizer that a configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate
from torch.optim import Optimizer

from hpcbench import plugins
from hpcbench.config.optimizers import OPTIMIZERS, OptimInfo, optimizer_info, options_of
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.checks import check_groups
from hpcbench.optim.layerwise import LayerwiseOptimizer
from staging.errors import InputError

Groups = list[dict[str, Any]]

IMPLEMENTATION = ("capturable", "fused", "foreach", "differentiable")
"""Options of torch's optimizers that say how they compute, not what."""


def create_optimizer(
    config: OptimConfig,
    groups: Groups,
    device: torch.device | str,
    capturable: bool = False,
    kinds: dict[nn.Parameter, str] | None = None,
) -> Optimizer:
    """Build the configured optimizer over ``groups``, in its fused form where torch has one on ``device``,
    unless ``config.fused`` is off.

    ``capturable`` makes it fit for graph capture: the learning rate becomes a tensor on the device, to be set with
    ``set_learning_rate``. A group's own ``weight_decay`` overrides the configuration's. ``kinds`` says which
    parameters are ``biases`` and ``norms``, for what is excluded from decay and adaptation.
    """
    info, options = optimizer_info(config.name), options_of(config)
    excluded = {"weight_decay": options.pop("decay_exclude", ()), "adapt": options.pop("adapt_exclude", ())}
    # The groups are copied, because an optimizer fills in its defaults in place.
    parts = [part for group in groups for part in split_group(dict(group), excluded, kinds or {})]
    options |= {"lr": config.lr, "weight_decay": config.weight_decay}
    builder = builder_of(info)
    if capturable:
        options["lr"] = torch.tensor(config.lr, device=device)
    if not issubclass(builder, LayerwiseOptimizer):
        options.pop("max_grad_norm", None)  # the loop clips before the step
        if capturable and config.name != "sgd":
            options["capturable"] = True
        if config.name not in OPTIMIZERS:
            check_takes(builder, options, config.name)
        if "fused" in signature(builder).parameters:
            options["fused"] = config.fused and _fused_works(builder, options, groups, device)
    return builder(parts, **options)


def builder_of(info: OptimInfo) -> type[Optimizer]:
    """The class of an optimizer. Raises ``InputError`` if it cannot be imported or is no optimizer."""
    builder = plugins.load(EntryPoint(info.name, info.builder, plugins.OPTIMIZERS))
    if not (isinstance(builder, type) and issubclass(builder, Optimizer)):
        raise InputError(f"optimizer '{info.name}' ({info.builder}) must be a torch.optim.Optimizer; mend its package")
    return builder


def check_takes(builder: type[Optimizer], options: dict[str, Any], name: str) -> None:
    """Raise ``InputError`` for an option that a plug-in's class does not take, such as ``capturable`` for a graph."""
    known = signature(builder).parameters
    hands_on = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in known.values())
    for option in options:
        if option == "capturable" and option not in known:
            raise InputError(f"optimizer '{name}' cannot be captured in a graph; set train.cuda_graph false")
        if option not in known and not hands_on:
            raise InputError(f"optimizer '{name}' ({builder.__name__}) does not take {option}; mend its package")


def states_of(config: OptimConfig) -> int:
    """How many tensors of a parameter's size the optimizer keeps for each, found by taking a step."""
    parameter = nn.Parameter(torch.zeros(2, 3))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = create_optimizer(config, [{"params": [parameter]}], "cpu")
    optimizer.step()
    entries = optimizer.state[parameter].values()
    return sum(isinstance(entry, Tensor) and entry.shape == parameter.shape for entry in entries)


def clipping_outside(config: OptimConfig) -> float:
    """The largest global norm of the gradients that the loop must enforce by clipping; 0 if there is none."""
    inside = issubclass(builder_of(optimizer_info(config.name)), LayerwiseOptimizer)
    return 0.0 if inside else float(options_of(config).get("max_grad_norm", 0.0))


def split_group(
    group: dict[str, Any], excluded: dict[str, tuple[str, ...]], kinds: dict[nn.Parameter, str]
) -> Iterator[dict[str, Any]]:
    """The group in parts, in order; the excluded parts have no weight decay, or trust ratio 1."""
    parts: dict[tuple[bool, ...], list[nn.Parameter]] = {}
    for parameter in group["params"]:
        out = tuple(kinds.get(parameter) in names for names in excluded.values())
        parts.setdefault(out, []).append(parameter)
    for out, parameters in parts.items():
        off = {"weight_decay": 0.0, "adapt": False}
        yield {
            **group,
            **{key: off[key] for key, is_out in zip(excluded, out, strict=True) if is_out},
            "params": parameters,
        }


def parameter_kinds(model: nn.Module) -> dict[nn.Parameter, str]:
    """``norms`` for the parameters of normalisation layers, ``biases`` for other parameters named ``bias``."""
    return {
        parameter: "norms" if "Norm" in type(module).__name__ else "biases"
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if "Norm" in type(module).__name__ or name == "bias"
    }


def _fused_works(builder: type[Optimizer], options: dict[str, Any], groups: Groups, device: torch.device | str) -> bool:
    """Whether torch has the fused form for such parameters, which some versions report only in the first step."""
    first = next((parameter for group in groups for parameter in group["params"]), None)
    value = torch.zeros(1, device=device)
    if isinstance(first, DTensor):
        mesh = first.device_mesh
        value = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
    trial = nn.Parameter(value)
    trial.grad = torch.zeros_like(trial)
    try:
        builder([trial], **{**options, "fused": True}).step()
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


def load_optimizer_state(optimizer: Any, state: dict[str, Any]) -> None:
    """Continue from ``state``, of a ``state_dict``; the options that say how the optimizer computes stay its own.

    So a run without a captured step may continue with one, and the other way round. Raises ``InputError`` for a state
    of other groups and, where the optimizer has trust ratios, of another optimizer.
    """
    name = optimizer.name if isinstance(optimizer, LayerwiseOptimizer) else type(optimizer).__name__
    check_groups(name, state, optimizer.param_groups)
    groups = []
    for saved, current in zip(state["param_groups"], optimizer.param_groups, strict=True):
        kept = {key: current[key] for key in IMPLEMENTATION if key in current}
        if "lr" in saved:
            kept["lr"] = learning_rate_like(current["lr"], saved["lr"])
        groups.append({**saved, **kept})
    optimizer.load_state_dict({**state, "param_groups": groups})


def learning_rate_like(current: float | Tensor, lr: float | Tensor) -> float | Tensor:
    """The learning rate ``lr`` in the form of ``current``: a number, or a tensor on its device."""
    return current.clone().fill_(float(lr)) if isinstance(current, Tensor) else float(lr)
