"""CosmoFlow's network: published counts, layers and initialization; the identities that its speed rests on."""

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from apps.cosmoflow.config import Config
from apps.cosmoflow.model import Block, CosmoFlow, MeanPool3d, build_model
from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from staging.errors import InputError


def configured(**settings: object) -> Config:
    config = Config()
    for name, value in settings.items():
        setattr(config.data if hasattr(config.data, name) else config.model, name, value)
    return config


def small() -> CosmoFlow:
    return build_model(configured(sample_size=16, conv_layers=2, base_channels=4))


@pytest.mark.parametrize(
    ("size", "kernel_size", "parameters"), [(128, 3, 8_907_556), (128, 2, 5_597_604), (64, 3, 5_237_540)]
)
def test_published_parameter_counts(size: int, kernel_size: int, parameters: int) -> None:
    with torch.device("meta"):
        model = build_model(configured(sample_size=size, kernel_size=kernel_size))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_published_parameters_of_each_layer() -> None:
    with torch.device("meta"):
        model = build_model(Config())
    layers = [module for module in model.modules() if isinstance(module, nn.Conv3d | nn.Linear)]
    assert [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers] == [
        3_488, 55_360, 221_312, 884_992, 3_539_456, 4_194_432, 8_256, 260,
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "kernel_size"), [(128, 3), (128, 2), (64, 3)])
def test_published_shapes(size: int, kernel_size: int) -> None:
    with torch.device("meta"):
        model = build_model(configured(sample_size=size, kernel_size=kernel_size)).eval()
        features = model.blocks(torch.empty(2, 4, size, size, size))
    assert features.shape == (2, 512, size // 32, size // 32, size // 32)


def test_outputs_stay_within_the_scaled_range() -> None:
    model = small().eval()
    output = model(torch.randn(3, 4, 16, 16, 16) * 1000)
    assert output.shape == (3, 4)
    assert output.abs().max() <= 1.2
    assert output.abs().max() > 1.1


def test_kernel_of_two_sees_its_own_cell_and_the_next() -> None:
    block = Block(2, 3, kernel_size=2).double()
    x = torch.randn(1, 2, 4, 4, 4, dtype=torch.float64)
    padded = torch.zeros(2, 5, 5, 5, dtype=torch.float64)
    padded[:, :4, :4, :4] = x[0]
    convolved = torch.zeros(3, 4, 4, 4, dtype=torch.float64)
    for d, h, w in itertools.product(range(4), repeat=3):
        window = padded[:, d : d + 2, h : h + 2, w : w + 2]
        convolved[:, d, h, w] = (block.conv.weight * window).sum(dim=(1, 2, 3, 4)) + block.conv.bias
    pooled = convolved.reshape(3, 2, 2, 2, 2, 2, 2).amax(dim=(2, 4, 6))
    torch.testing.assert_close(block(x)[0], torch.where(pooled > 0, pooled, 0.3 * pooled))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_pooling_before_the_activation_changes_no_bit(layout: torch.memory_format) -> None:
    block = Block(4, 8, kernel_size=3)
    x = torch.randn(2, 4, 8, 8, 8).contiguous(memory_format=layout).requires_grad_()
    published = functional.max_pool3d(functional.leaky_relu(block.conv(x), 0.3), 2)
    result = block(x)
    assert torch.equal(result, published)
    weights = torch.randn_like(published)
    gradients = [
        torch.autograd.grad((value * weights).sum(), [x, *block.parameters()]) for value in (result, published)
    ]
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_the_mean_of_a_block_is_that_of_torch_and_keeps_the_layout(layout: torch.memory_format) -> None:
    x = torch.randn(2, 4, 8, 12, 16, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    expected, result = functional.avg_pool3d(x, 2), MeanPool3d()(x)
    torch.testing.assert_close(result, expected, rtol=1e-13, atol=1e-14)
    assert result.is_contiguous(memory_format=layout)
    weights = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad((value * weights).sum(), x)[0] for value in (result, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last_3d])
def test_means_of_16_bit_activations(dtype: torch.dtype, layout: torch.memory_format) -> None:
    """Torch's own average pooling refuses cubes of them on a CPU, in either layout."""
    block = Block(4, 8, kernel_size=3, pooling="mean")
    x = torch.randn(2, 4, 8, 8, 8).contiguous(memory_format=layout).requires_grad_()
    expected = block(x)
    (gradient,) = torch.autograd.grad(expected.square().sum(), x)
    with torch.autocast("cpu", dtype):
        result = block(x)
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), expected, rtol=0.02, atol=0.02)
    (half,) = torch.autograd.grad(result.float().square().sum(), x)
    torch.testing.assert_close(half, gradient, rtol=0.05, atol=0.05)


def test_a_block_takes_the_mean_of_what_is_activated() -> None:
    """In the published order: convolution, activation, pooling. A mean, unlike a maximum, tells the orders apart."""
    block = Block(4, 8, kernel_size=3, pooling="mean").double()
    x = torch.randn(2, 4, 8, 8, 8, dtype=torch.float64)
    expected = functional.avg_pool3d(functional.leaky_relu(block.conv(x), 0.3), 2)
    torch.testing.assert_close(block(x), expected, rtol=1e-13, atol=1e-14)
    assert not torch.allclose(functional.leaky_relu(functional.avg_pool3d(block.conv(x), 2), 0.3), expected)


def test_the_published_network_pools_maxima_and_laptop_means() -> None:
    application = find_application("cosmoflow")
    published = resolve(application, "mlperf").model.pooling, resolve(application, "smoke").model.pooling
    assert (*published, resolve(application, "laptop").model.pooling) == ("max", "max", "mean")
    mean = build_model(configured(sample_size=16, conv_layers=2, base_channels=4, pooling="mean"))
    assert all(isinstance(block.pool, nn.AvgPool3d) for block in mean.blocks)
    count = sum(parameter.numel() for parameter in mean.parameters())
    assert count == sum(parameter.numel() for parameter in small().parameters()), "pooling has no parameters"


def test_features_are_flattened_with_the_channel_last() -> None:
    seen: list[Tensor] = []
    model = small()
    model.dense1.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    x = torch.randn(2, 4, 16, 16, 16)
    model.eval()(x)
    features = model.blocks(x)
    position = ((1 * 4 + 2) * 4 + 3) * 8 + 5
    assert torch.equal(seen[0][:, position], features[:, 5, 1, 2, 3])


@pytest.mark.parametrize("kernel_size", [2, 3])
def test_channels_last_is_kept_so_that_flattening_copies_nothing(kernel_size: int) -> None:
    model = build_model(configured(sample_size=16, conv_layers=2, base_channels=4, kernel_size=kernel_size))
    model = model.to(memory_format=torch.channels_last_3d)
    features = model.blocks(torch.randn(2, 4, 16, 16, 16).contiguous(memory_format=torch.channels_last_3d))
    assert features.is_contiguous(memory_format=torch.channels_last_3d)
    assert features.permute(0, 2, 3, 4, 1).flatten(1).data_ptr() == features.data_ptr()


def test_kernels_start_glorot_uniform_and_biases_zero() -> None:
    torch.manual_seed(1)
    model = build_model(configured(sample_size=32))
    for layer in model.modules():
        if not isinstance(layer, nn.Conv3d | nn.Linear):
            continue
        assert layer.bias is not None
        assert not layer.bias.any()
        outputs, inputs = layer.weight.shape[:2]
        field = layer.weight[0, 0].numel()
        bound = (6 / ((inputs + outputs) * field)) ** 0.5
        assert bound * 0.9 < layer.weight.abs().max() <= bound
        # Standard deviation of a uniform distribution, within five standard errors.
        spread = 5 * (0.8 / layer.weight.numel()) ** 0.5 / 2
        assert float(layer.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=spread)


def test_the_seed_decides_the_weights() -> None:
    weights = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        weights.append(torch.cat([parameter.flatten() for parameter in small().parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conv_layers": 0}, r"model.conv_layers \(0\) must be at least 1"),
        ({"base_channels": 0}, r"model.base_channels \(0\) must be at least 1"),
        ({"sample_size": 0}, r"data.sample_size \(0\) must be at least 1"),
        ({"sample_size": 48}, r"data.sample_size \(48\) must be a multiple of 32"),
        ({"dropout": 1.0}, r"model.dropout \(1.0\) must be below 1"),
    ],
)
def test_impossible_models_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configured(**settings).validate()
