"""The CosmoFlow network (MLPerf HPC reference, mlcommons/hpc): 3-D convolution blocks and a dense head."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from apps.cosmoflow.config import PARAMETERS, Config
from hpcbench.parallel.spatial.pooling import average_pool
from hpcbench.train.dropout import SampleDropout

SLOPE = 0.3
"""Negative slope of every LeakyReLU, the default of Keras."""
OUTPUT_SCALE = 1.2
"""The last layer is OUTPUT_SCALE * tanh, a little wider than the labels' range [-1, 1]."""
HIDDEN = (128, 64)
"""Units of the two hidden dense layers."""


class MeanPool3d(nn.AvgPool3d):
    """Average pooling by 2, in every dimension.

    On a CPU, torch's own leaves the channels-last layout, and the gradient of what comes before it then takes several
    times as long. Sums over one dimension after the other keep the layout.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, d, h, w) to (batch, channels, d/2, h/2, w/2)."""
        if x.device.type != "cpu":
            return super().forward(x)
        if not x.is_contiguous(memory_format=torch.channels_last_3d):
            return average_pool(x, (2,) * 3, (2,) * 3, (0,) * 3)
        batch, channels, depth, height, width = x.shape
        x = x.permute(0, 2, 3, 4, 1).view(batch, depth // 2, 2, height * width * channels).sum(2)
        x = x.view(batch, depth // 2, height // 2, 2, width * channels).sum(3)
        x = x.view(batch, depth // 2, height // 2, width // 2, 2, channels).sum(4)
        return (x * 0.125).permute(0, 4, 1, 2, 3)


class Block(nn.Module):
    """Convolution, LeakyReLU and pooling by 2, of the maximum or the mean.

    LeakyReLU never decreases, so it commutes with a maximum exactly. After a maximum it touches an eighth of the
    elements, so this is the order here; with a mean the order is the published one.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, pooling: str = "max") -> None:
        super().__init__()
        self.activation_first = pooling == "mean"
        # TensorFlow's SAME pads an even kernel on the far side only, which a symmetric convolution cannot express.
        self.far_side_padding = [0, 1] * 3 if kernel_size == 2 else [0] * 6
        padding = (kernel_size - 1) // 2
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, padding=padding)
        self.pool = nn.MaxPool3d(2) if pooling == "max" else MeanPool3d()
        self.activation = nn.LeakyReLU(SLOPE, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in, d, h, w) to (batch, out, d/2, h/2, w/2)."""
        if any(self.far_side_padding):
            x = functional.pad(x, self.far_side_padding)
        convolved = self.conv(x)
        if self.activation_first:
            convolved = self.activation(convolved)
        # On a CPU autocast would pool in float32: two copies of the largest activation, for the same result.
        with torch.autocast("cpu", enabled=False) if convolved.device.type == "cpu" else nullcontext():
            pooled: Tensor = self.pool(convolved)
        return pooled if self.activation_first else self.activation(pooled)


class CosmoFlow(nn.Module):
    """Four cosmological parameters from the particle counts of a cube.

    Input (batch, channels, size, size, size), output (batch, 4) in [-1.2, 1.2]. The features are flattened with the
    channel last, as published; with channels-last activations the result is a view.
    """

    def __init__(
        self, size: int, channels: int, conv_layers: int, base_channels: int, kernel_size: int, dropout: float,
        pooling: str = "max",
    ) -> None:  # fmt: skip
        super().__init__()
        widths = [channels] + [base_channels * 2**layer for layer in range(conv_layers)]
        self.blocks = nn.Sequential(*(Block(before, after, kernel_size, pooling) for before, after in pairwise(widths)))
        self.dense1 = nn.Linear(widths[-1] * (size // 2**conv_layers) ** 3, HIDDEN[0])
        self.dense2 = nn.Linear(HIDDEN[0], HIDDEN[1])
        self.output = nn.Linear(HIDDEN[1], len(PARAMETERS))
        self.dropout1 = SampleDropout(dropout, stream=1)
        self.dropout2 = SampleDropout(dropout, stream=2)
        self.apply(_initialize)

    def forward(self, x: Tensor) -> Tensor:
        """Scaled parameters of each sample, (batch, 4)."""
        features = self.blocks(x).permute(0, 2, 3, 4, 1).flatten(1)
        hidden = self.dropout1(functional.leaky_relu(self.dense1(features), SLOPE))
        hidden = self.dropout2(functional.leaky_relu(self.dense2(hidden), SLOPE))
        return OUTPUT_SCALE * torch.tanh(self.output(hidden))


def build_model(config: Config) -> CosmoFlow:
    """The network that ``config`` describes, initialized from torch's global generator."""
    return CosmoFlow(
        size=config.data.sample_size,
        channels=config.data.channels,
        conv_layers=config.model.conv_layers,
        base_channels=config.model.base_channels,
        kernel_size=config.model.kernel_size,
        dropout=config.model.dropout,
        pooling=config.model.pooling,
    )


def _initialize(module: nn.Module) -> None:
    """Glorot-uniform kernels and zero biases, the defaults of Keras."""
    if isinstance(module, nn.Conv3d | nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
