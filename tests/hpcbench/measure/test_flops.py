"""Published operation counts of both networks, and hand counts of single layers."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from apps.cosmoflow.config import Config as CosmoFlowConfig
from apps.cosmoflow.model import build_model as build_cosmoflow
from apps.deepcam.config import Config as DeepCAMConfig
from apps.deepcam.model import build_model as build_deepcam
from hpcbench.measure.flops import count_flops


def cosmoflow(size: int, kernel_size: int = 3) -> nn.Module:
    config = CosmoFlowConfig()
    config.data.sample_size, config.model.kernel_size = size, kernel_size
    with torch.device("meta"):
        return build_cosmoflow(config)


def deepcam() -> nn.Module:
    with torch.device("meta"):
        return build_deepcam(DeepCAMConfig())


@pytest.mark.parametrize(
    ("size", "kernel_size", "forward", "training"),
    [(128, 3, 68.86e9, 192.09e9), (128, 2, 20.41e9, 57e9), (64, 3, 8.61e9, 24.01e9)],
)
def test_cosmoflow_operations_are_as_published(size: int, kernel_size: int, forward: float, training: float) -> None:
    count = count_flops(cosmoflow(size, kernel_size), torch.empty(1, 4, size, size, size))
    assert count.forward == pytest.approx(forward, rel=5e-4)
    assert count.training == pytest.approx(training, rel=2e-3)


@pytest.mark.parametrize(
    ("height", "width", "forward", "training"), [(768, 1152, 655.3e9, 1.964e12), (192, 288, 40.96e9, 122.75e9)]
)
def test_deepcam_operations_are_as_published(height: int, width: int, forward: float, training: float) -> None:
    count = count_flops(deepcam(), torch.empty(1, 16, height, width))
    assert count.forward == pytest.approx(forward, rel=1e-4)
    assert count.training == pytest.approx(training, rel=1e-4)


def test_deepcam_parts() -> None:
    model = deepcam()
    assert count_flops(model.encoder, torch.empty(1, 16, 768, 1152)).forward == pytest.approx(312.3e9, rel=2e-4)
    assert count_flops(model.pyramid, torch.empty(1, 2048, 48, 72)).forward == pytest.approx(103.7e9, rel=5e-4)
    low_level = torch.empty(1, 48, 192, 288)
    assert count_flops(model.decoder, torch.empty(1, 256, 48, 72), low_level).forward == pytest.approx(
        238.6e9, rel=2e-4
    )


def test_training_is_three_times_forward_without_the_gradient_of_the_input() -> None:
    model = cosmoflow(64)
    count = count_flops(model, torch.empty(2, 4, 64, 64, 64))
    first = 2 * 2 * 64**3 * 32 * 4 * 27
    assert count.training == 3 * count.forward - first


@pytest.mark.parametrize(
    ("layer", "shape", "forward"),
    [
        (nn.Linear(5, 7), (3, 5), 2 * 3 * 5 * 7),
        (nn.Linear(5, 7, bias=False), (2, 3, 5), 2 * 6 * 5 * 7),
        (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 10), 2 * 2 * 10 * 6 * 4 * 3),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), (1, 8, 5, 5), 2 * 25 * 8 * 9),
        (nn.Conv2d(8, 4, 3, stride=2, padding=1, groups=2), (1, 8, 6, 6), 2 * 9 * 4 * 4 * 9),
        (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4), 2 * 27 * 3 * 2 * 8),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (1, 4, 5, 5), 2 * 25 * 4 * 6 * 9),
        (nn.ConvTranspose3d(4, 6, 2, stride=2, groups=2), (1, 4, 3, 3, 3), 2 * 27 * 4 * 3 * 8),
    ],
)
def test_single_layers(layer: nn.Module, shape: tuple[int, ...], forward: int) -> None:
    count = count_flops(layer, torch.empty(shape))
    assert count.forward == forward
    assert count.training == 2 * forward
    # With a layer before it, the gradient of its input is needed too.
    deeper = count_flops(nn.Sequential(nn.PReLU(), layer), torch.empty(shape))
    assert deeper.training == 3 * forward


def test_forward_agrees_with_the_counter_of_torch() -> None:
    model, inputs = deepcam().eval(), torch.empty(1, 16, 64, 96, device="meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    assert count_flops(model, inputs).forward == counter.get_total_flops()


def test_frozen_parameters_cost_no_gradient() -> None:
    layer = nn.Linear(5, 7).requires_grad_(False)
    count = count_flops(layer, torch.empty(3, 5))
    assert count.training == count.forward


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout().eval())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    count_flops(model, torch.empty(2, 3, 8, 8))
    assert [module.training for module in model] == [True, True, False]
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
