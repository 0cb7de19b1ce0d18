"""Optimizers on an accelerator: the numbers of the host, captured or not, without waiting for the device."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import nn

from hpcbench.config.optimizers import OPTIMIZERS
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.registry import create_optimizer, set_learning_rate
from hpcbench.optim.tensors import DEVICE_BUCKET, HAS_TRITON

pytestmark = pytest.mark.gpu

SHAPES = ((64, 3, 5, 5), (7,), (33, 129), (1,), (300, 1000))
LAYERWISE = ("lars", "larc", "lamb", "nvlamb")


def parameters(device: torch.device | str, dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype).to(device)) for shape in SHAPES]


def fill_gradients(weights: list[nn.Parameter], step: int) -> None:
    """Gradients of a step, in place where there are some, as a captured graph needs them."""
    generator = torch.Generator().manual_seed(100 + step)
    for weight in weights:
        gradient = torch.randn(weight.shape, generator=generator, dtype=weight.dtype).to(weight.device)
        weight.grad = gradient if weight.grad is None else weight.grad.copy_(gradient)


def config(name: str) -> OptimConfig:
    return OptimConfig(name=name, lr=1.0 if name == "lars" else 0.01, weight_decay=0.02)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_the_numbers_are_those_of_the_host(
    name: str, dtype: torch.dtype, tolerance: float, device: torch.device
) -> None:
    host, other = parameters("cpu", dtype), parameters(device, dtype)
    for weights, place in ((host, "cpu"), (other, device)):
        optimizer = create_optimizer(config(name), [{"params": weights}], place)
        for step in range(10):
            fill_gradients(weights, step)
            optimizer.step()
    for one, two in zip(host, other, strict=True):
        torch.testing.assert_close(two.cpu(), one, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", LAYERWISE)
def test_no_step_waits_for_the_device(
    name: str, device: torch.device, no_waiting: Callable[[], AbstractContextManager[None]]
) -> None:
    weights = parameters(device, torch.float32)
    optimizer = create_optimizer(config(name), [{"params": weights}], device)
    fill_gradients(weights, 0)
    optimizer.step()
    with no_waiting():
        optimizer.step()


@pytest.mark.parametrize("name", ["adamw", *LAYERWISE])
def test_a_captured_step_is_the_same(name: str, device: torch.device, graphs: Any) -> None:
    if device.type == "cpu" and name in LAYERWISE:
        pytest.skip(f"needs an accelerator: on a processor {name} computes norms on the host, which no graph holds")
    eager, captured = parameters(device, torch.float32), parameters(device, torch.float32)
    plain = create_optimizer(config(name), [{"params": eager}], device)
    graphed = create_optimizer(config(name), [{"params": captured}], device, capturable=True)
    side = graphs.Stream()
    side.wait_stream(graphs.current_stream())
    with graphs.stream(side):  # a first step outside, in which the state is made
        fill_gradients(captured, 0)
        graphed.step()
    graphs.current_stream().wait_stream(side)
    graph = graphs.CUDAGraph()
    with graphs.graph(graph):
        graphed.step()
    for step in range(6):
        rate = 0.01 * (step + 1)
        for weights, optimizer in ((eager, plain), (captured, graphed)):
            fill_gradients(weights, step)
            if step or optimizer is plain:
                set_learning_rate(optimizer, rate if step else config(name).lr)
        plain.step()
        if step:
            graph.replay()
    for one, two in zip(eager, captured, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LAYERWISE)
def test_the_scaler_divides_and_an_overflow_changes_nothing(name: str, device: torch.device) -> None:
    scaled, plain = parameters(device, torch.float32), parameters(device, torch.float32)
    optimizer = create_optimizer(config(name), [{"params": scaled}], device)
    reference = create_optimizer(config(name), [{"params": plain}], device)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    for step in range(4):
        fill_gradients(scaled, step)
        gradients = [weight.grad.clone() for weight in scaled if weight.grad is not None]
        optimizer.zero_grad()
        factor = float("inf") if step == 2 else 1.0
        scaler.scale(sum((w * g).sum() for w, g in zip(scaled, gradients, strict=True)) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        if step != 2:
            fill_gradients(plain, step)
            reference.step()
    assert scaler.get_scale() == 512.0
    for one, two in zip(plain, scaled, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERWISE)
def test_one_launch_of_each_kernel_works_on_all_layers(name: str, device: torch.device) -> None:
    """Norms, their sums and the update, though the layers are more than a step may hold memory for."""
    if device.type != "cuda" or not HAS_TRITON:
        pytest.skip(f"needs Triton and an accelerator that it compiles for, not {device.type}")
    weights = [nn.Parameter(torch.ones(size, device=device)) for size in (DEVICE_BUCKET, 7, DEVICE_BUCKET, 1000)]
    optimizer = create_optimizer(config(name), [{"params": weights}], device)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        optimizer.step()
        torch.get_device_module(device).synchronize()
    launches = Counter(event.name for event in profile.events())
    kernels = ("norms", "add_sums", "update") if name in ("lars", "larc") else ("first_pass", "add_sums", "second_pass")
    assert {kernel: launches[kernel] for kernel in kernels} == dict.fromkeys(kernels, 1)


@pytest.mark.parametrize("name", LAYERWISE)
def test_copies_take_the_same_steps_to_the_bit(name: str, device: torch.device) -> None:
    weights = parameters(device, torch.float32)
    optimizer = create_optimizer(config(name), [{"params": weights}], device)
    fill_gradients(weights, 0)
    optimizer.step()
    copies = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    for each in (optimizer, *copies):
        own = [parameter for group in each.param_groups for parameter in group["params"]]
        for step in range(1, 4):
            fill_gradients(own, step)
            each.step()
    for each in copies:
        copied = [parameter for group in each.param_groups for parameter in group["params"]]
        assert all(torch.equal(*pair) for pair in zip(copied, weights, strict=True))
