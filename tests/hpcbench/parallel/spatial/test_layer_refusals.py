"""What cannot be split over ranks is refused in one line that names the layer."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from hpcbench.parallel.spatial.layers import split_layers
from staging.errors import InputError

from .threads import ThreadAxis, ThreadWorld


@pytest.mark.parametrize(
    ("layer", "sample", "words"),
    [
        (nn.LayerNorm(4), (3, 4, 4), "layer 0 (LayerNorm) has no form for samples that are split over ranks"),
        (
            nn.Conv2d(3, 3, 3, padding=1),
            (3, 2, 8),
            "layer 0 has an input of size 2 in dimension 1 of a sample",
        ),
        (nn.Conv2d(3, 3, 3, 4, padding=1), (3, 8, 8), "layer 0 has an output of size 2 in dimension 1 of a sample"),
        (nn.Conv2d(3, 3, 3, padding="same"), (3, 8, 8), "layer 0: a split convolution needs its padding in numbers"),
        (nn.Conv2d(3, 3, 3, padding=1, padding_mode="circular"), (3, 8, 8), "not by padding_mode 'circular'"),
        (nn.MaxPool2d(2, ceil_mode=True), (3, 8, 8), "layer 0: a split pooling has no ceil_mode"),
        (nn.AvgPool2d(2, divisor_override=3), (3, 8, 8), "has no divisor_override"),
        (nn.AdaptiveAvgPool2d(2), (3, 8, 8), "layer 0: a split adaptive pooling gives one place, not 2"),
        (nn.PixelShuffle(2), (4, 8, 8), "layer 0 (PixelShuffle) has no form"),
        (nn.AdaptiveMaxPool2d(1), (3, 8, 8), "layer 0 (AdaptiveMaxPool2d) has no form"),
        (nn.BatchNorm2d(3), (3, 8, 8), "layer 0 (BatchNorm2d) has no form"),
    ],
)
def test_what_cannot_be_split_is_said_in_one_line(layer: nn.Module, sample: tuple[int, ...], words: str) -> None:
    axes = {2: ThreadAxis(ThreadWorld(3), 0)}
    with pytest.raises(InputError) as caught:
        split_layers(nn.Sequential(layer), sample, axes)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_layers_that_meet_two_sizes_or_none_are_refused() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(2, 2, 3, padding=1)
            self.unused = nn.Conv2d(2, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(self.conv(x)[:, :, ::2])

    axes = {2: ThreadAxis(ThreadWorld(2), 0)}
    with pytest.raises(InputError, match=r"layer conv meets inputs of \(8, 8\) and of \(4, 8\); give each its own"):
        split_layers(Odd(), (2, 8, 8), axes)
    Odd.forward = lambda self, x: self.conv(x)  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"layer unused .* takes no part in a forward pass"):
        split_layers(Odd(), (2, 8, 8), axes)


def test_empty_containers_are_no_layers() -> None:
    model = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Sequential())
    split_layers(model, (2, 8, 8), {2: ThreadAxis(ThreadWorld(2), 0)})
    assert list(model[1].children()) == []
