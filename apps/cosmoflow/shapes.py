"""Shapes of a CosmoFlow batch, for counting without data."""

from __future__ import annotations

import torch
from torch import Tensor

from apps.cosmoflow.config import PARAMETERS, Config


def batch_shapes(config: Config, samples: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of ``samples`` samples as model and loss take them, on the meta device.

    Channels are last in memory, as samples are stored.
    """
    size = (config.data.sample_size,) * 3
    return (
        torch.empty(samples, config.data.channels, *size, device="meta", memory_format=torch.channels_last_3d),
        torch.empty(samples, len(PARAMETERS), device="meta"),
    )
