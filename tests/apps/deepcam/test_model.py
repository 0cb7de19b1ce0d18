"""DeepCAM's network: published counts of every part, any size, initialization."""

from typing import Literal

import pytest
import torch
from torch import nn

from apps.deepcam.config import Config
from apps.deepcam.model import DeepCAM, SpatialPyramid, build_model
from staging.errors import InputError
from tests.params import slow_except


def published() -> DeepCAM:
    with torch.device("meta"):
        return build_model(Config())


def small() -> DeepCAM:
    config = Config()
    config.model.width_factor, config.model.middle_blocks = 0.0625, 2
    return build_model(config)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_published_parameter_counts() -> None:
    model = published()
    assert count(model) == 56_454_720
    assert len(list(model.parameters())) == 301
    assert count(model.encoder) == 37_778_400
    assert count(model.pyramid) == 15_535_104
    assert count(model.low_level) == 6_144 + 96
    assert count(model.decoder) == 3_134_976
    assert sum(buffer.numel() for buffer in model.buffers()) == 97_836


def test_published_layer_counts() -> None:
    modules = list(published().modules())
    normalizations = [module for module in modules if isinstance(module, nn.BatchNorm2d)]
    assert len(normalizations) == 76
    assert sum(module.num_features for module in normalizations) == 48_880
    assert {(module.eps, module.momentum) for module in normalizations} == {(1e-5, 0.1)}
    convolutions = [module for module in modules if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 142
    assert sum(module.bias is not None for module in convolutions) == 1
    assert sum(isinstance(module, nn.ConvTranspose2d) for module in modules) == 4


def test_published_parameters_of_a_middle_block() -> None:
    encoder = published().encoder
    blocks = [module for module in encoder.middle if count(module)]
    assert [count(block) for block in blocks] == [1_613_976] * 16


@pytest.mark.parametrize(("height", "width"), [(768, 1152), (192, 288), (16, 16)])
def test_published_shapes(height: int, width: int) -> None:
    model = published().eval()
    x = torch.empty(1, 16, height, width, device="meta")
    features, low_level = model.encoder(x)
    assert features.shape == (1, 2048, height // 16, width // 16)
    assert low_level.shape == (1, 128, height // 4, width // 4)
    assert model(x).shape == (1, 3, height, width)


@pytest.mark.parametrize(
    ("height", "width"), slow_except([(16, 16), (32, 48)], [(16, 16), (32, 48), (96, 16), (80, 112)])
)
def test_any_multiple_of_sixteen_trains(height: int, width: int) -> None:
    model = small()
    logits = model(torch.randn(2, 16, height, width))
    assert logits.shape == (2, 3, height, width)
    logits.square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_smaller_models_have_fewer_channels_and_blocks() -> None:
    config = Config()
    config.model.width_factor, config.model.middle_blocks = 0.25, 4
    config.data.channels = [0, 1, 7]
    model = build_model(config)
    assert model.encoder.stem[0].weight.shape == (8, 3, 3, 3)
    # A quarter of 728 is 182; channels are multiples of 8.
    middle = [module for module in model.encoder.middle if count(module)]
    assert len(middle) == 4
    assert middle[0].main[0][1].weight.shape == (184, 184, 1, 1)


def test_low_level_features_are_activated() -> None:
    _, low_level = small().encoder(torch.randn(2, 16, 32, 32))
    assert low_level.min() == 0
    assert low_level.max() > 0


def test_dilation_beyond_the_map_leaves_the_middle_tap() -> None:
    pyramid = SpatialPyramid(8, 16).double()
    x = torch.randn(2, 8, 6, 5, dtype=torch.float64)
    for branch, dilation in zip(pyramid.branches[1:], (6, 12, 18), strict=True):
        convolution = branch[0]
        assert convolution.dilation == (dilation, dilation)
        expected = torch.einsum("oc,bchw->bohw", convolution.weight[:, :, 1, 1], x)
        torch.testing.assert_close(convolution(x), expected)


def test_image_mean_is_the_mean_of_the_map() -> None:
    pyramid = SpatialPyramid(8, 16).double()
    pyramid.image_mean[2].bias.data.normal_()
    x = torch.randn(2, 8, 3, 7, dtype=torch.float64)
    kernel, bias = pyramid.image_mean[1].weight[:, :, 0, 0], pyramid.image_mean[2].bias
    expected = torch.relu(x.mean(dim=(2, 3)) @ kernel.T + bias)
    torch.testing.assert_close(pyramid.image_mean(x)[:, :, 0, 0], expected)


def test_encoder_and_pyramid_start_kaiming_normal() -> None:
    torch.manual_seed(1)
    config = Config()
    config.model.middle_blocks = 1
    model = build_model(config)
    for part in (model.encoder, model.pyramid):
        for layer in part.modules():
            if isinstance(layer, nn.Conv2d):
                fan_in = layer.weight[0].numel()
                error = 5 / (2 * layer.weight.numel()) ** 0.5
                assert float(layer.weight.detach().std()) == pytest.approx((2 / fan_in) ** 0.5, rel=error)
    # PyTorch's default for convolutions is uniform within 1 / sqrt(fan_in).
    convolution = model.decoder.refine[0][0]
    assert convolution.weight.abs().max() <= convolution.weight[0].numel() ** -0.5


def test_the_seed_decides_the_weights() -> None:
    weights = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        weights.append(torch.cat([parameter.flatten() for parameter in small().parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_channels_last_changes_nothing_but_rounding() -> None:
    model = small().double().eval()
    x = torch.randn(2, 16, 48, 32, dtype=torch.float64)
    expected = model(x)
    result = model.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last))
    assert result.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize(
    ("part", "name", "value", "message"),
    [
        ("model", "width_factor", 0.0, r"model.width_factor \(0.0\) must be above 0"),
        ("model", "middle_blocks", -1, r"model.middle_blocks \(-1\) must be at least 0"),
        ("data", "height", 100, r"data.height \(100\) must be a multiple of 16"),
        ("data", "width", 0, r"data.width \(0\) must be at least 16; choose from 16 to 32768"),
        ("data", "channels", [], r"must name at least one channel, each once"),
        ("data", "channels", [0, 16], r"data.channels\[1\] \(16\) must be at most 15; choose from 0 to 15"),
        ("data", "channels", [3, 3], r"must name at least one channel, each once"),
    ],
)
def test_impossible_models_are_refused(part: str, name: str, value: object, message: str) -> None:
    config = Config()
    setattr(getattr(config, part), name, value)
    with pytest.raises(InputError, match=message):
        config.validate()


@pytest.mark.parametrize(("local_batch_size", "last_batch"), [(1, "drop"), (2, "keep")])
def test_one_pixel_of_features_in_one_sample_is_refused(
    local_batch_size: int, last_batch: Literal["keep", "drop"]
) -> None:
    """Batch norm has no statistics of one value: torch says so only in the middle of an epoch."""
    config = Config()
    config.data.height = config.data.width = 16
    config.train.local_batch_size, config.data.last_batch = local_batch_size, last_batch
    with pytest.raises(InputError, match=r"set train.local_batch_size 2 and data.last_batch drop, or a larger grid"):
        config.validate()
    config.train.local_batch_size, config.data.last_batch = 2, "drop"
    config.validate()
