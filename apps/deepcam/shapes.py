"""Shapes of a DeepCAM batch, for counting without data."""

from __future__ import annotations

import torch
from torch import Tensor

from apps.deepcam.config import Config


def batch_shapes(config: Config, samples: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets of ``samples`` samples as model and loss take them, on the meta device.

    Channels are last in memory, as samples are stored.
    """
    size = (config.data.height, config.data.width)
    return (
        torch.empty(samples, len(config.data.channels), *size, device="meta", memory_format=torch.channels_last),
        torch.empty(samples, *size, dtype=torch.int64, device="meta"),
    )
