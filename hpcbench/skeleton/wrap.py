"""Writes the package of an application that uses a model and a dataset of other packages unchanged."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from hpcbench.adapters.lightning_module import LightningNetwork, is_lightning, optimizers_of
from hpcbench.adapters.no_trainer import overridden
from hpcbench.skeleton import new_folder, write_files
from hpcbench.skeleton.wrapped import render_wrapped
from hpcbench.skeleton.wrapping import Found, Wrapping
from staging.errors import InputError

FOLDER_NAMES = ("data_dir", "root", "data_root", "data_path", "root_dir", "folder", "path")
"""Arguments of data modules that take the folder of a dataset."""
OPTIMIZERS = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw"}
"""Names of torch's optimizers in the suite."""
SETTINGS = ("weight_decay", "momentum", "nesterov", "betas", "eps")
DROPPED = ("amsgrad", "dampening", "maximize")
"""Options of torch's optimizers that the suite's do not have."""


def wrap(name: str, out: Path, asked: Wrapping) -> Path:
    """Write ``out / name``, an application of the parts that ``asked`` names; returns that folder.

    Raises ``InputError`` for a name that cannot be used and for parts that the suite cannot take.
    """
    folder = new_folder(name, out)
    facts = look_at(asked)
    write_files(folder, render_wrapped(name, asked, facts))
    return folder


def look_at(asked: Wrapping) -> Found:
    """Import the parts and make the model. Raises ``InputError`` for those that don't belong together."""
    if (asked.data is None) == (asked.dataset is None):
        raise InputError("name the data with either --data, a LightningDataModule, or --dataset, a function")
    model = made(asked.module, "--module")
    check_sizes(model, asked.module)
    lightning = is_lightning(model)
    if lightning and asked.loss is not None:
        raise InputError(f"{asked.module} is a LightningModule, whose training_step has the loss; leave out --loss")
    if not lightning:
        check_plain(asked)
    metrics = asked.metrics or ("val_loss",)
    argument = folder_argument(imported(asked.data, "--data")) if asked.data else None
    if asked.dataset:
        imported(asked.dataset, "--dataset")
    if lightning:
        LightningNetwork(model, metrics, asked.keys)
    optimizer, remark = optimizer_settings(model) if lightning else ({}, "")
    return Found(lightning, optimizer or {"name": "adam", "lr": 0.001}, remark or "a start; set yours", argument)


def check_plain(asked: Wrapping) -> None:
    """Refuse what a plain module cannot be wrapped with. Raises ``InputError``."""
    if asked.loss is None:
        raise InputError(f"{asked.module} is no LightningModule, so it needs a loss: --loss package.module:function")
    if len(asked.metrics) > 1:
        raise InputError(f"--metric is given {len(asked.metrics)} times; a plain module takes one, a function")
    for option, path in (("--loss", asked.loss), *(("--metric", path) for path in asked.metrics)):
        if inspect.isclass(imported(path, option)):
            raise InputError(
                f"{option} ({path}) is a class; name a function of output and target, such as "
                "torch.nn.functional:mse_loss"
            )


def imported(path: str, option: str) -> Any:
    """What ``package.module:name`` names. Raises ``InputError`` if there is no such thing, or it is not callable."""
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise InputError(f"{option} ({path}) must be package.module:name")
    try:
        module = import_module(module_name)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        hint = "; install hpcbench-ml[lightning]" if "lightning" in str(error) else ""
        raise InputError(
            f"{option} ({path}): {module_name} cannot be imported ({what}){hint or '; install it, or set PYTHONPATH'}"
        ) from None
    named = getattr(module, name, None)
    if not callable(named):
        raise InputError(f"{option} ({path}): {module_name} has no class or function '{name}'; mend the name")
    return named


def made(path: str, option: str) -> nn.Module:
    """The model that calling ``path`` makes. Raises ``InputError`` if that needs arguments, or it is no module."""
    make = imported(path, option)
    try:
        model = make()
    except Exception as error:
        raise InputError(
            f"{option} ({path}) cannot be made without arguments ({type(error).__name__}: {error}); "
            "give a function that makes it"
        ) from None
    if not isinstance(model, nn.Module):
        raise InputError(f"{option} ({path}) makes a {type(model).__name__}, no torch.nn.Module; name a module's class")
    return model


def check_sizes(model: nn.Module, path: str) -> None:
    """Refuse layers whose sizes a first batch would decide, such as ``LazyLinear``. Raises ``InputError``."""
    lazy = next((name for name, value in model.named_parameters() if is_lazy(value)), None)
    if lazy is not None:
        raise InputError(f"--module ({path}): '{lazy}' has no size before a first batch; give its layer its sizes")


def folder_argument(make: Any) -> str | None:
    """The argument by which a data module takes its folder. Raises ``InputError`` for other required arguments."""
    parameters = inspect.signature(make).parameters
    argument = next((name for name in FOLDER_NAMES if name in parameters), None)
    for name, parameter in parameters.items():
        named = parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if named and parameter.default is inspect.Parameter.empty and name != argument:
            raise InputError(
                f"the data module needs the argument '{name}'; give a function of the folder that makes it, with an "
                f"argument {FOLDER_NAMES[0]}"
            )
    return argument


def optimizer_settings(model: Any) -> tuple[dict[str, Any], str]:
    """Settings of ``optim`` that match ``configure_optimizers``, and a remark on where they come from."""
    if not overridden(model, "configure_optimizers"):
        return {}, "a start; configure_optimizers has none"
    optimizers = optimizers_of(model)
    if not optimizers:
        return {}, "a start; configure_optimizers needs a Trainer"
    optimizer, kind = optimizers[0], type(optimizers[0]).__name__
    if kind not in OPTIMIZERS:
        return {}, f"a start; the suite does not know {kind} of configure_optimizers"
    group = optimizer.param_groups[0]
    # Making a schedule takes its first step, after which "lr" is the rate at the start, often that of a warm-up.
    peak = group.get("max_lr", group.get("initial_lr", group["lr"]))
    settings: dict[str, Any] = {"name": OPTIMIZERS[kind], "lr": float(peak)}
    for name in SETTINGS:
        value = group.get(name)
        if value is not None:
            settings[name] = list(value) if isinstance(value, tuple) else value
    several = ", of its first group" if len(optimizer.param_groups) > 1 else ""
    without = ", ".join(["its schedule", *(name for name in DROPPED if group.get(name))])
    return settings, f"of configure_optimizers{several}, without {without}"
