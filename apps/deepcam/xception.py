"""Modified aligned Xception, the encoder of DeepCAM (Chollet 2017; Chen et al. 2018; MLPerf HPC reference)."""

from __future__ import annotations

from torch import Tensor, nn


class SeparableConv(nn.Sequential):
    """Depthwise 3x3 convolution directly followed by a pointwise one; no bias, no normalization in between."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__(
            nn.Conv2d(
                in_channels, in_channels, 3, stride, padding=dilation, dilation=dilation, groups=in_channels, bias=False
            ),
            nn.Conv2d(in_channels, out_channels, 1, bias=False),
        )


class Residual(nn.Module):
    """Sum of a main path and a shortcut; ``shortcut`` of ``None`` is the identity."""

    def __init__(self, main: nn.Module, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.main = main
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Main path plus shortcut, without an activation."""
        result: Tensor = self.main(x)
        shortcut = x if self.shortcut is None else self.shortcut(x)  # not within the call: torch.compile would warn
        # In place: neither a convolution nor a normalization needs its output again in the backward pass.
        return result.add_(shortcut)


def activation() -> nn.Module:
    """ReLU in place."""
    return nn.ReLU(inplace=True)


def shortcut(in_channels: int, out_channels: int, stride: int = 1) -> nn.Sequential:
    """1x1 convolution and normalization that fit the shortcut to the main path."""
    return nn.Sequential(nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels))


def entry_block(in_channels: int, out_channels: int) -> Residual:
    """Residual block of the entry flow, which halves height and width."""
    main = nn.Sequential(
        SeparableConv(in_channels, out_channels),
        nn.BatchNorm2d(out_channels),
        activation(),
        SeparableConv(out_channels, out_channels),
        nn.BatchNorm2d(out_channels),
        SeparableConv(out_channels, out_channels, stride=2),
    )
    return Residual(main, shortcut(in_channels, out_channels, stride=2))


def middle_block(channels: int) -> Residual:
    """Residual block of the middle flow, which keeps its shape."""
    main: list[nn.Module] = []
    for layer in range(3):
        main += [SeparableConv(channels, channels), nn.BatchNorm2d(channels)]
        if layer < 2:
            main.append(activation())
    return Residual(nn.Sequential(*main), None)


def exit_block(in_channels: int, out_channels: int) -> Residual:
    """Residual block at the start of the exit flow."""
    main = nn.Sequential(
        SeparableConv(in_channels, in_channels),
        nn.BatchNorm2d(in_channels),
        activation(),
        SeparableConv(in_channels, out_channels),
        nn.BatchNorm2d(out_channels),
        SeparableConv(out_channels, out_channels),
    )
    return Residual(main, shortcut(in_channels, out_channels))


class Xception(nn.Module):
    """Features at a sixteenth of the resolution, and low-level features at a quarter.

    ``widths`` are the channels of stem (two), entry flow (three), exit block and exit convolutions (three); the
    published ones are 32, 64, 128, 256, 728, 1024, 1536, 1536, 2048.
    """

    def __init__(self, in_channels: int, widths: list[int], middle_blocks: int) -> None:
        super().__init__()
        stem1, stem2, entry1, entry2, entry3, exit0, exit1, exit2, exit3 = widths
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, stem1, 3, 2, padding=1, bias=False),
            nn.BatchNorm2d(stem1),
            activation(),
            nn.Conv2d(stem1, stem2, 3, padding=1, bias=False),
            nn.BatchNorm2d(stem2),
            activation(),
            entry_block(stem2, entry1),
            # The published block leaves this activation to its caller; the decoder sees its result.
            activation(),
        )
        self.entry = nn.Sequential(entry_block(entry1, entry2), activation(), entry_block(entry2, entry3), activation())
        middle: list[nn.Module] = []
        for _ in range(middle_blocks):
            middle += [middle_block(entry3), activation()]
        self.middle = nn.Sequential(*middle)
        final: list[nn.Module] = [exit_block(entry3, exit0)]
        for before, after in ((exit0, exit1), (exit1, exit2), (exit2, exit3)):
            final += [SeparableConv(before, after, dilation=2), nn.BatchNorm2d(after), activation()]
        self.exit = nn.Sequential(*final)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, in, h, w) to features (batch, 2048, h/16, w/16) and low-level ones (batch, 128, h/4, w/4)."""
        low_level = self.stem(x)
        return self.exit(self.middle(self.entry(low_level))), low_level
