"""The optimizers by name, each with a line about it and its own options and defaults; imports no torch.

Other packages register theirs in the group ``hpcbench.optimizers``, an ``OptimInfo`` each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from hpcbench import plugins
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError

if TYPE_CHECKING:
    from hpcbench.config.schema import OptimConfig

SHARED = ("name", "lr", "weight_decay", "scaling", "base_batch_size", "fused")
"""Settings of ``optim`` that every optimizer has."""
INFINITE = float("inf")


@dataclass(frozen=True)
class OptimInfo:
    """A registered optimizer. A variant is the same ``builder`` with other defaults.

    ``options`` are its settings besides the shared ones, with their defaults; ``builder`` is ``module:class``, of a
    ``torch.optim.Optimizer`` that takes them; ``official`` is its name in an MLPerf log.
    """

    name: str
    description: str
    builder: str
    options: Mapping[str, Any]
    official: str


CLIPPING = {"max_grad_norm": 0.0}
EXCLUSION = {"decay_exclude": ()}
MOMENTUM = {"momentum": 0.9, "nesterov": False}
MOMENTS = {"betas": (0.9, 0.999), "eps": 1e-6}
LAYERS = {"trust_bounds": (0.0, INFINITE), "adapt_exclude": ()}
VECTORS = ("biases", "norms")
LARS = {
    **MOMENTUM, "trust_coefficient": 0.001, "clip_rate": False, "eps": 0.0, **LAYERS, **CLIPPING,
    "decay_exclude": VECTORS, "adapt_exclude": VECTORS,
}  # fmt: skip
LAMB = {
    **MOMENTS, "bias_correction": True, "grad_averaging": True, "always_adapt": True, **LAYERS, **CLIPPING,
    "decay_exclude": VECTORS, "adapt_exclude": VECTORS,
}  # fmt: skip

OPTIMIZERS: Mapping[str, OptimInfo] = {
    info.name: info
    for info in (
        OptimInfo(
            "sgd", "stochastic gradient descent with momentum, L2 decay; CosmoFlow's closed division",
            "torch.optim:SGD", {**MOMENTUM, **EXCLUSION, **CLIPPING}, "sgd",
        ),
        OptimInfo(
            "adam", "Adam with L2 decay in the gradient (Kingma and Ba 2015)",
            "torch.optim:Adam", {**MOMENTS, **EXCLUSION, **CLIPPING}, "Adam",
        ),
        OptimInfo(
            "adamw", "Adam with decoupled decay (Loshchilov and Hutter 2019)",
            "torch.optim:AdamW", {**MOMENTS, **EXCLUSION, **CLIPPING}, "AdamW",
        ),
        OptimInfo(
            "lars", "momentum with a rate for each layer, for large batches (You, Gitman and Ginsburg 2017)",
            "hpcbench.optim.lars:LARS", LARS, "lars",
        ),
        OptimInfo(
            "larc", "LARS whose layers are never faster than the rate, and so need no warm-up",
            "hpcbench.optim.lars:LARS", {**LARS, "clip_rate": True, "trust_coefficient": 0.02}, "larc",
        ),
        OptimInfo(
            "lamb", "Adam with a rate for each layer, for large batches (You et al. 2020)",
            "hpcbench.optim.lamb:LAMB", LAMB, "LAMB",
        ),
        OptimInfo(
            "nvlamb", "LAMB of all tensors with the gradient's global norm at most 1; DeepCAM's closed division",
            "hpcbench.optim.lamb:LAMB",
            {**LAMB, "always_adapt": False, "max_grad_norm": 1.0, "decay_exclude": (), "adapt_exclude": ()}, "LAMB",
        ),
    )
}  # fmt: skip


def optimizer_names() -> list[str]:
    """The optimizers of the suite, then those of other packages; nothing is imported."""
    return [*OPTIMIZERS, *(name for name in plugins.names(plugins.OPTIMIZERS) if name not in OPTIMIZERS)]


def optimizer_info(name: str) -> OptimInfo:
    """The optimizer called ``name``.

    Raises ``InputError`` that suggests the nearest one if there is none, or says what is wrong with a plug-in.
    """
    point = plugins.find(plugins.OPTIMIZERS, name, OPTIMIZERS)
    if point is not None:
        info: OptimInfo = plugins.load(point, OptimInfo)
        return checked(info, name)
    if name not in OPTIMIZERS:
        raise InputError(f"unknown optimizer optim.name '{shown(name)}'; {suggest(name, optimizer_names())}")
    return OPTIMIZERS[name]


def checked(info: OptimInfo, name: str) -> OptimInfo:
    """A plug-in's description. Raises ``InputError`` for another name, and for options that cannot be set."""
    from hpcbench.config.schema import OptimConfig

    if info.name != name:
        raise InputError(f"optimizer '{name}' is called '{info.name}' by its package; mend or uninstall it")
    known = own_settings(OptimConfig())
    for option in info.options:
        if option not in known:
            raise InputError(
                f"optimizer '{name}' has the option '{shown(option)}', which is no setting of optim "
                f"({suggest(option, known)}); make it a default of its class, or uninstall its package"
            )
    return info


def own_settings(config: OptimConfig) -> list[str]:
    """The settings of ``optim`` that only some optimizers have."""
    return [field.name for field in fields(config) if field.name not in SHARED]


def options_of(config: OptimConfig) -> dict[str, Any]:
    """The optimizer's options: its defaults, and what is set. Raises ``InputError`` for one that it lacks."""
    info = optimizer_info(config.name)
    given = {name: value for name in own_settings(config) if (value := getattr(config, name)) is not None}
    for name in given:
        if name not in info.options:
            raise InputError(
                f"optim.{name} is no option of {config.name}, which has {', '.join(info.options)}; unset it"
            )
    return {**info.options, **given}
