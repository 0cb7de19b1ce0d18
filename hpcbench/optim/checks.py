"""Checks of options, parameters and loaded states for the optimizers with trust ratios; each error is one line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from hpcbench.optim.tensors import is_dense, local
from staging.bounds import shown
from staging.errors import InputError

NUMBERS = (float, int, Real)
"""``Real`` takes longer to check, and covers NumPy's numbers."""


def _number(value: Any) -> bool:
    return isinstance(value, NUMBERS)


def _finite(value: Any) -> bool:
    return _number(value) and 0 <= value < math.inf


def _rate(value: Any) -> bool:
    """A number, or a tensor of one number; a value on an accelerator is not read, which would mean waiting for it."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and (value.device.type != "cpu" or _finite(value.item()))
    return _finite(value)


def _decay_rate(value: Any) -> bool:
    return _number(value) and 0 <= value < 1


def _pair(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(_number, value))


def _decay_rates(value: Any) -> bool:
    return _pair(value) and all(map(_decay_rate, value))


def _bounds(value: Any) -> bool:
    return _pair(value) and 0 <= value[0] <= value[1] and math.isfinite(value[0])


def _flag(value: Any) -> bool:
    return value in (False, True)


FINITE = (_finite, "a finite number of at least 0")
FLAG = (_flag, "true or false")
RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lr": (_rate, "a finite number of at least 0"),
    **dict.fromkeys(("eps", "weight_decay", "trust_coefficient", "max_grad_norm"), FINITE),
    "momentum": (_decay_rate, "a number of at least 0 and below 1"),
    "betas": (_decay_rates, "two numbers of at least 0 and below 1"),
    "trust_bounds": (_bounds, "a finite number of at least 0 and one that is not smaller"),
    **dict.fromkeys(
        ("adapt", "always_adapt", "bias_correction", "clip_rate", "grad_averaging", "nesterov"), FLAG
    ),
}  # fmt: skip
"""What each option accepts, as a function and in words. NaN is never within bounds."""


def check_options(name: str, options: Mapping[str, Any], where: str = "") -> None:
    """Raise ``InputError`` for an option of optimizer ``name`` out of its range; ``where`` says where it was given."""
    for key, value in options.items():
        if key in RULES and not RULES[key][0](value):
            raise InputError(f"{name}: {key} ({shown(value)}){where} must be {RULES[key][1]}")


def check_parameter(name: str, parameter: Tensor) -> None:
    """Raise ``InputError`` for a parameter that optimizer ``name`` cannot handle."""
    shape = tuple(parameter.shape)
    if parameter.layout != torch.strided:
        raise InputError(f"{name} takes dense parameters, not a sparse one of shape {shape}; pass its to_dense()")
    if torch.is_complex(parameter):
        raise InputError(f"{name} takes real parameters, not a complex one of shape {shape}; pass its view_as_real")
    if isinstance(parameter, DTensor) and any(placement.is_partial() for placement in parameter.placements):
        raise InputError(f"{name} takes whole or sharded parameters, not {parameter.placements}; redistribute first")
    if not is_dense(local(parameter)):
        raise InputError(
            f"{name} takes parameters whose elements fill their memory, not a view of shape {shape} and strides "
            f"{local(parameter).stride()}; pass its contiguous()"
        )


def check_groups(name: str, state: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise ``InputError`` unless a ``state_dict`` has as many groups and parameters as optimizer ``name``."""
    missing = [key for key in ("state", "param_groups") if key not in state]
    if missing:
        raise InputError(f"{name}: the loaded state lacks {', '.join(missing)}; load what state_dict() returned")
    loaded, needed = ([len(group["params"]) for group in either] for either in (state["param_groups"], groups))
    if loaded != needed:
        raise InputError(
            f"{name}: the loaded state has groups of {shown(loaded)} parameters, this optimizer of {shown(needed)}; "
            "make both with the same groups"
        )


def check_state(
    name: str,
    state: Mapping[Any, Mapping[str, Any]],
    groups: Sequence[Mapping[str, Any]],
    options: Iterable[str],
    moments: Sequence[str],
    counts: Sequence[str],
) -> None:
    """Raise ``InputError`` unless ``state`` and ``groups`` are those of optimizer ``name`` for their parameters.

    ``options`` names the options that each group must have, ``moments`` the state tensors of a parameter's shape, and
    ``counts`` the step counts. A parameter that never had a gradient has no state.
    """
    again = f"load the state of a {name} over the same parameters"
    expected = {*moments, *counts}
    rest = dict(state)
    for number, group in enumerate(groups):
        if missing := [key for key in options if key in RULES and key not in group]:
            raise InputError(f"{name}: group {number} of the loaded state lacks {', '.join(missing)}; {again}")
        check_options(name, group, f" of group {number}")
        for index, parameter in enumerate(group["params"]):
            values = rest.pop(parameter, None)
            if not values:
                continue
            what = f"{name}: the loaded state of parameter {index} of group {number}"
            if set(values) != expected:
                has, asked = (", ".join(sorted(map(str, keys))) for keys in (values, expected))
                raise InputError(f"{what} has {shown(has)}, not {asked}; {again}")
            for key in moments:
                if (problem := _moment_problem(values[key], parameter)) is not None:
                    raise InputError(f"{what}: {key} {problem}; {again}")
            for key in counts:
                if not _count(values[key]):
                    raise InputError(
                        f"{what}: {key} ({shown(values[key])}) must be a finite number of at least 0; {again}"
                    )
    if rest:
        raise InputError(f"{name}: the loaded state is also of {shown(list(rest))}, no parameter of a group; {again}")


def check_method(
    name: str,
    loaded: Sequence[Mapping[str, Any]],
    groups: Sequence[Mapping[str, Any]],
    options: Sequence[str],
    named: Callable[[Mapping[str, Any]], str],
) -> None:
    """Raise ``InputError`` if the ``options`` of a ``loaded`` group make another method than those of ``name``'s group.

    What matters is whether an option is on: a largest norm may change along a training. ``named`` is the name of an
    optimizer with given options.
    """
    for number, (saved, own) in enumerate(zip(loaded, groups, strict=True)):
        if other := [key for key in options if bool(saved[key]) != bool(own[key])]:
            has, asked = (", ".join(f"{key} {shown(group[key])}" for key in other) for group in (saved, own))
            raise InputError(
                f"{name}: group {number} of the loaded state is of {named(saved)} ({has}), and this optimizer is "
                f"{named(own)} ({asked}); load the state of the same optimizer"
            )


def _moment_problem(value: Any, parameter: Tensor) -> str | None:
    if not isinstance(value, Tensor) or value.layout != torch.strided or torch.is_complex(value):
        return "must be a real dense tensor"
    if value.shape != parameter.shape:
        return f"has shape {tuple(value.shape)}, the parameter {tuple(parameter.shape)}"
    if local(value).shape != local(parameter).shape:
        return f"has {tuple(local(value).shape)} on this rank, the parameter {tuple(local(parameter).shape)}"
    return None


def _count(value: Any) -> bool:
    """Whether this is a valid step count; a tensor on the meta device has no value to check."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and (value.device.type == "meta" or _finite(value.item()))
    return _finite(value)
