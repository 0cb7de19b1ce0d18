"""A step counted at the published size: operations, messages, and what grows with the batch."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from hpcbench.application import find_application
from hpcbench.characterisation.counts import Counted, count_step
from hpcbench.characterisation.message_counts import Links
from hpcbench.characterisation.model import PRODUCTS, total
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.planning.counting import shapes
from hpcbench.train.build import build_model
from hpcbench.train.warm_up import whole_batch
from staging.errors import InputError

ALONE = MeshShape(1, (1,))
LAYERS = (nn.Linear, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@cache
def counted(application: str, preset: str, *settings: tuple[str, object]) -> Counted:
    found = find_application(application)
    config = resolve(found, preset, overrides={"train.precision": "32-true", **dict(settings)})
    return count_step(found, config, ALONE)


def products(counted_step: Counted) -> float:
    return total([kernel for kernel in counted_step.kernels if kernel.kind in PRODUCTS], "flop")


def test_cosmoflow_at_the_published_size() -> None:
    found = counted("cosmoflow", "mlperf", ("train.local_batch_size", 1))
    assert found.parameters == 8_907_556
    # Published 192.09 GFLOP of forward and backward pass, and 35.6 MB of gradients in fp32.
    assert products(found) == found.useful_flop == pytest.approx(192.09e9, rel=1e-4)
    (gradients,) = found.messages
    assert (gradients.kind, gradients.bytes, gradients.count) == ("gradients", 4 * 8_907_556, 2)
    # The first convolution is 14.50 GFLOP of the published forward pass.
    first = next(kernel for kernel in found.kernels if kernel.kind == "convolution")
    assert first.flop == pytest.approx(14.50e9, rel=1e-3)
    assert (first.read_bytes, first.written_bytes) == (4 * (4 * 128**3 + 3488), 256 * 2**20)
    assert first.fixed_bytes == 4 * 3488


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam"])
def test_products_are_those_that_the_layers_of_a_pass_tell(name: str) -> None:
    """Independent of what torch dispatches: of each layer's output (input, where transposed) and weights.

    Forward, the gradient of the weights, and that of the input unless the layer is the first.
    """
    application = find_application(name)
    settings = {"train.precision": "32-true", "parallel.accelerator": "cpu"}
    config = resolve(application, "smoke", overrides=settings)
    model = build_model(application, config, torch.device("cpu"), 0)
    operations: list[int] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        weights = layer.get_parameter("weight").shape[1:]
        places = inputs[0] if isinstance(layer, nn.ConvTranspose2d | nn.ConvTranspose3d) else output
        operations.append(2 * places.numel() * math.prod(weights) * (3 if inputs[0].requires_grad else 2))

    for layer in model.modules():
        if isinstance(layer, LAYERS):
            layer.register_forward_hook(note)
    inputs, target = whole_batch(application, config, config.train.local_batch_size, torch.device("cpu"))
    application.module("task").build_task(config).forward(model, inputs.float(), target)
    assert products(counted(name, "smoke", *settings.items())) == sum(operations)


def test_what_is_saved_for_each_sample_is_apart_from_copies_of_weights() -> None:
    """In bf16-mixed each weight of a convolution or a dense layer is saved in bfloat16, too."""
    full, mixed = (counted("cosmoflow", "smoke", ("train.precision", precision)).footprint
                   for precision in ("32-true", "bf16-mixed"))  # fmt: skip
    assert full.saved_fixed == 0
    assert 0 < mixed.saved_fixed <= full.parameters // 2
    assert mixed.saved_fixed < mixed.saved


@pytest.mark.parametrize("application", ["cosmoflow", pytest.param("deepcam", marks=pytest.mark.slow)])
def test_a_smaller_batch_from_a_larger_one(application: str) -> None:
    two, five = (counted(application, "smoke", ("train.local_batch_size", size)) for size in (2, 5))
    assert len(two.kernels) == len(five.kernels)
    for at_two, at_five in zip(two.kernels, five.kernels, strict=True):
        assert at_two.at_batch(2, 5) == pytest.approx((at_five.flop, at_five.bytes))


def test_micro_batches_repeat_passes_and_not_the_update() -> None:
    once, thrice = (counted("cosmoflow", "smoke", ("train.accumulation", number)) for number in (1, 3))
    assert products(thrice) == 3 * products(once)
    assert [kernel.count for kernel in thrice.kernels if kernel.kind == "optimizer"] == [1]
    assert thrice.useful_flop == once.useful_flop


def test_recomputed_activations_are_executed_and_not_useful() -> None:
    plain, again = (counted("cosmoflow", "smoke", ("parallel.activation_checkpointing", on)) for on in (False, True))
    assert products(again) > 1.05 * products(plain)
    assert again.useful_flop == plain.useful_flop
    assert again.footprint.saved < plain.footprint.saved


def test_the_update_reads_and_writes_parameters_gradients_and_moments() -> None:
    kernel = counted("cosmoflow", "smoke").kernels[-1]  # AdamW: two moments
    size = 4 * counted("cosmoflow", "smoke").parameters
    assert (kernel.read_bytes, kernel.written_bytes, kernel.fixed_bytes) == (4 * size, 3 * size, 7 * size)


def test_samples_that_ranks_share_have_halos() -> None:
    found = find_application("cosmoflow")
    config = resolve(found, "smoke", overrides={"train.precision": "32-true", "parallel.spatial": "2"})
    halo = next(each for each in count_step(found, config, MeshShape(1, (2,)), Links("within a node")).messages
                if each.kind == "halo")  # fmt: skip
    # 3 layers of 16^3, 8^3 and 4^3 with 4, 8 and 16 channels send a face of the input forward; the last two one of
    # the gradient back, of 16 and 32 channels.
    forward = 4 * 4 * (4 * 16**2 + 8 * 8**2 + 16 * 4**2)
    assert halo.bytes >= forward
    assert (halo.operation, halo.link, halo.fixed) == ("exchange", "within a node", False)


def test_an_application_without_shapes_cannot_be_counted() -> None:
    nameless = replace(find_application("cosmoflow"), package="tests.hpcbench.characterisation")
    config = resolve(find_application("cosmoflow"), "smoke")
    with pytest.raises(InputError, match="has no module 'shapes', so its shapes are taken from a sample; set --data"):
        shapes(nameless, config, 1)
