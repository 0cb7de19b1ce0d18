"""Refuses a model that convolves, pools or resizes samples in its own code, where no layer can get its split form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from staging.errors import InputError

WINDOWED = ("conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool", "adaptive_max_pool", "adaptive_avg_pool")
"""Beginnings of the names of functions whose outputs depend on neighbouring inputs, which may be on other ranks."""
REFUSED = {functional.interpolate, functional.grid_sample} | {
    getattr(module, name)
    for module in (functional, torch)
    for name in (
        f"{kind}{dims}d{ending}" for kind in WINDOWED for dims in (1, 2, 3) for ending in ("", "_with_indices")
    )
    if hasattr(module, name)
}


class RefusedCalls(TorchFunctionMode):
    """While active, raises ``InputError`` for a call of ``REFUSED``, except within modules that ``may`` make them."""

    def __init__(self, model: nn.Module, may: Callable[[str, nn.Module], bool]) -> None:
        super().__init__()
        self._within: list[str] = []
        self._allowed = 0
        for name, module in model.named_modules():
            module.register_forward_pre_hook(self._enter(name, may(name, module)))
            module.register_forward_hook(self._leave(may(name, module)))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not self._allowed and func in REFUSED:
            where = f"module {self._within[-1]}" if self._within and self._within[-1] else "the model"
            raise InputError(
                f"{where} calls {func.__name__} in its own code, which is not split over ranks; make it a layer "
                "(such as nn.Upsample or nn.Conv2d), name the module in `whole`, or set parallel.spatial 1"
            )
        return func(*args, **(kwargs or {}))

    def _enter(self, name: str, may: bool) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, inputs: Any) -> None:
            self._within.append(name)
            self._allowed += may

        return hook

    def _leave(self, may: bool) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            self._within.pop()
            self._allowed -= may

        return hook
