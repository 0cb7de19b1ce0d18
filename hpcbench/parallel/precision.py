"""Number formats: what ``auto`` means on this CPU or accelerator, and the one policy that a run follows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hpcbench.config.schema import Precision
from hpcbench.parallel.fabric import Fabric
from hpcbench.parallel.fabric import Precision as PrecisionPlugin

FAST_BFLOAT16 = frozenset({"amx_bf16", "avx512_bf16"})
"""CPU flags (Linux names) of instructions that multiply bfloat16 faster than float32."""


def resolve_precision(precision: Precision, device: torch.device) -> Precision:
    """The precision of a run: ``auto`` is bf16-mixed where the hardware multiplies bfloat16 fast, else 32-true."""
    if precision != "auto":
        return precision
    if device.type == "cuda":  # NVIDIA's have bfloat16 from Ampere on; those before, such as V100, emulate it
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        fast = device.type != "cpu" or bool(FAST_BFLOAT16 & processor_flags())
    return "bf16-mixed" if fast else "32-true"


def set_tf32(allowed: bool) -> None:
    """Allow or forbid TF32 for float32 convolutions and matrix products of an NVIDIA GPU."""
    # Not ``fp32_precision``, which torch 2.9 and later also have: torch.compile fails if that was set.
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def processor_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction-set flags of the first CPU, as Linux names them; empty if they cannot be read."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


class PrecisionPolicy:
    """The number formats of a run: autocast, the scaling of gradients, and what a checkpoint keeps of them.

    Fabric does all of it; nothing else accesses its plug-in.
    """

    def __init__(self, fabric: Fabric, plugin: PrecisionPlugin) -> None:
        self._fabric = fabric
        self._plugin = plugin
        self.name = str(plugin.precision)
        self.dtype = torch.float64 if self.name == "64-true" else torch.float32
        """The type of parameters, losses and outputs."""
        self.scaler: Any = getattr(plugin, "scaler", None)
        """The gradient scaler for 16-mixed, else ``None``."""

    def as_input(self, prepared: Tensor) -> Tensor:
        """Convert floating-point values to the run's type; integers, such as tokens, stay as they are."""
        return prepared.to(self.dtype) if prepared.is_floating_point() else prepared

    def autocast(self) -> AbstractContextManager[Any]:
        """A context in which a forward pass computes in the formats of the run."""
        context: AbstractContextManager[Any] = self._fabric.autocast()
        return context

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of ``loss``, scaled if the run scales them."""
        self._fabric.backward(loss)

    def wrap(self, optimizer: Optimizer) -> Any:
        """The optimizer wrapped in the gradient scaler; the original one is its ``optimizer``."""
        return self._fabric.setup_optimizers(optimizer)

    def unscale(self, optimizer: Any) -> None:
        """Divide the gradients by the scale, before they are inspected."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """The state of the scaler."""
        return self._plugin.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""
        self._plugin.load_state_dict(state)
