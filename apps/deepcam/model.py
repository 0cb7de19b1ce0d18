"""DeepCAM's DeepLabv3+ (Chen et al. 2018; Kurth et al. 2018; MLPerf HPC reference, mlcommons/hpc), output stride 16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from apps.deepcam.config import CLASSES, Config
from apps.deepcam.xception import Xception, activation

ENCODER_WIDTHS = (32, 64, 128, 256, 728, 1024, 1536, 1536, 2048)
"""Channels of stem, entry flow, exit block and exit convolutions."""
DECODER_WIDTH = 256
"""Channels of the pyramid's branches and of the decoder."""
LOW_LEVEL_WIDTH = 48
"""Channels to which the low-level features are reduced."""
DILATIONS = (6, 12, 18)
"""Dilation of the pyramid's 3x3 branches at output stride 16."""


class ChannelAffine(nn.Module):
    """Weight and bias for each channel: what remains of a normalization with one value per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift ``x`` (batch, channels, h, w), keeping its dtype: float32 would spread to what it joins."""
        return (x * self.weight[:, None, None] + self.bias[:, None, None]).to(x.dtype)


class ImageMean(nn.AdaptiveAvgPool2d):
    """Mean over the image, (batch, channels, h, w) to (batch, channels, 1, 1), whose gradient takes no memory."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, x: Tensor) -> Tensor:
        mean: Callable[[Tensor], Tensor] = _Mean.apply
        return mean(x)


class _Mean(torch.autograd.Function):
    """The mean, with a gradient that takes no memory.

    Torch's own mean writes its gradient to memory, and not channels-last, which then holds for all that is added to it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.mean(dim=(2, 3), keepdim=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        shape: torch.Size = ctx.shape
        return (gradient / shape[2:].numel()).expand(shape)


class SpatialPyramid(nn.Module):
    """Atrous spatial pyramid pooling: 1x1, three dilated 3x3 and the image mean, merged by a 1x1 convolution."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        branches = [_unit(nn.Conv2d(in_channels, channels, 1, bias=False))]
        branches += [
            _unit(nn.Conv2d(in_channels, channels, 3, padding=dilation, dilation=dilation, bias=False))
            for dilation in DILATIONS
        ]
        self.branches = nn.ModuleList(branches)
        self.image_mean = nn.Sequential(
            ImageMean(),
            nn.Conv2d(in_channels, channels, 1, bias=False),
            ChannelAffine(channels),
            activation(),
        )
        self.merge = _unit(nn.Conv2d((len(branches) + 1) * channels, channels, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, in, h, w) to (batch, channels, h, w)."""
        parts = [branch(x) for branch in self.branches]
        # Laid out like the others: a view would make the joined features, and all that follow, channels-first.
        parts.append(torch.empty_like(parts[0]).copy_(self.image_mean(x)))
        merged: Tensor = self.merge(torch.cat(parts, dim=1))
        return merged


class Decoder(nn.Module):
    """Upsamples the pyramid's features, joined with the low-level ones, to full resolution."""

    def __init__(self, channels: int, low_level_channels: int) -> None:
        super().__init__()
        self.up = nn.Sequential(_unit(_double(channels, channels)), _unit(_double(channels, channels)))
        self.refine = nn.Sequential(
            _unit(nn.Conv2d(channels + low_level_channels, channels, 3, padding=1, bias=False)),
            _unit(nn.Conv2d(channels, channels, 3, padding=1, bias=False)),
            nn.Conv2d(channels, channels, 1),
            _unit(_double(channels, channels)),
            _double(channels, len(CLASSES)),
        )

    def forward(self, x: Tensor, low_level: Tensor) -> Tensor:
        """(batch, channels, h/16, w/16) and (batch, low_level_channels, h/4, w/4) to (batch, 3, h, w)."""
        logits: Tensor = self.refine(torch.cat((self.up(x), low_level), dim=1))
        return logits


class DeepCAM(nn.Module):
    """Class logits of each pixel: (batch, channels, h, w) to (batch, 3, h, w), for h and w multiples of 16.

    Encoder and pyramid start from Kaiming-normal kernels, the rest from PyTorch's defaults, as published.
    """

    def __init__(self, channels: int, width_factor: float, middle_blocks: int) -> None:
        super().__init__()
        widths = [_scaled(width, width_factor) for width in ENCODER_WIDTHS]
        width = _scaled(DECODER_WIDTH, width_factor)
        low_level_width = _scaled(LOW_LEVEL_WIDTH, width_factor)
        self.encoder = Xception(channels, widths, middle_blocks)
        self.pyramid = SpatialPyramid(widths[-1], width)
        self.low_level = _unit(nn.Conv2d(widths[2], low_level_width, 1, bias=False))
        self.decoder = Decoder(width, low_level_width)
        self.encoder.apply(_initialize)
        self.pyramid.apply(_initialize)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (batch, 3, h, w)."""
        features, low_level = self.encoder(x)
        logits: Tensor = self.decoder(self.pyramid(features), self.low_level(low_level))
        return logits


def build_model(config: Config) -> DeepCAM:
    """The network that ``config`` describes, initialized from torch's global generator."""
    return DeepCAM(len(config.data.channels), config.model.width_factor, config.model.middle_blocks)


def _unit(convolution: nn.Conv2d | nn.ConvTranspose2d) -> nn.Sequential:
    return nn.Sequential(convolution, nn.BatchNorm2d(convolution.out_channels), activation())


def _double(in_channels: int, out_channels: int) -> nn.ConvTranspose2d:
    """Transposed 3x3 convolution that doubles height and width."""
    return nn.ConvTranspose2d(in_channels, out_channels, 3, stride=2, padding=1, output_padding=1, bias=False)


def _scaled(width: int, factor: float) -> int:
    """Scale a channel count to a multiple of 8, at least 8; every published count is such a multiple."""
    return max(8, round(width * factor / 8) * 8)


def _initialize(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
