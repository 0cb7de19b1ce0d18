"""``torch.compile`` of a model whose layers may exchange messages."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hpcbench.parallel.batchnorm_group import GroupBatchNorm
from hpcbench.parallel.spatial.convolution import SplitConvolution
from hpcbench.parallel.spatial.pooling import Gather, SplitGlobalMean, SplitPool
from hpcbench.parallel.spatial.resize import SplitUpsample

EXCHANGING = (Gather, GroupBatchNorm, SplitConvolution, SplitGlobalMean, SplitPool, SplitUpsample)
"""Layers that wait for other ranks."""
MOST_VARIANTS = 64
"""Compiled variants of a function between two exchanges; blocks of different shapes share one. Torch stops at 8."""


def compiled(model: nn.Module) -> Any:
    """``model``, compiled for the sizes that it meets. Layers that exchange messages run as they are.

    The compiler cannot trace an exchange: it would warn, try each function within, and compile these for every size.
    """
    exempt: Any = torch.compiler.disable
    exchanging: list[Any] = [layer for layer in model.modules() if isinstance(layer, EXCHANGING)]
    for layer in exchanging:
        layer.forward = exempt(layer.forward)
    if exchanging:
        config: Any = torch._dynamo.config
        config.recompile_limit = max(config.recompile_limit, MOST_VARIANTS)
    return torch.compile(model, dynamic=False)
