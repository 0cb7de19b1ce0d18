"""Refuses a model that resizes samples in its own code, where no layer can be replaced by its split form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from staging.errors import InputError

RESAMPLING = (functional.interpolate, functional.grid_sample)


class OwnResampling(TorchFunctionMode):
    """While active, raises ``InputError`` for a call that resizes, except within modules that ``may`` do so."""

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
        if func in RESAMPLING and not self._allowed:
            where = f"module {self._within[-1]}" if self._within and self._within[-1] else "the model"
            raise InputError(
                f"{where} calls {func.__name__} in its own code, which is not split over ranks; make it a layer "
                "(nn.Upsample), name the module in `whole`, or set parallel.spatial 1"
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
