"""The captured step against a stand-in device, which records without computing and computes on replay, as real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from hpcbench.train.cuda_graph import WARMUP_STEPS, GraphedStep
from staging.errors import InputError


class Graph:
    """What a capture recorded."""

    work: Callable[[], None]

    def replay(self) -> None:
        self.work()


class Stream:
    """A stream that knows for which others it has waited."""

    def __init__(self) -> None:
        self.waited: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other)


class Device:
    """The functions of ``torch.cuda`` that a capture needs."""

    CUDAGraph = Graph
    Stream = Stream

    def __init__(self) -> None:
        self.recording: Graph | None = None
        self.main = self.current = Stream()
        self.side: list[Stream] = []

    def current_stream(self) -> Stream:
        return self.current

    def synchronize(self) -> None:
        assert self.recording is None

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        assert stream.waited == [self.main]
        self.side.append(stream)
        self.current = stream
        yield
        self.current = self.main

    @contextmanager
    def graph(self, graph: Graph) -> Iterator[None]:
        self.recording = graph
        yield
        self.recording = None


class Problem:
    """A mean squared error of a linear model; its gradient is added in place, as autograd does."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.weights = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
        self.gradient = torch.zeros(3, dtype=torch.float64)
        self.eager = 0

    def step(self, inputs: Tensor, target: Tensor) -> Tensor:
        loss = torch.zeros((), dtype=torch.float64)

        def work() -> None:
            error = inputs @ self.weights - target
            loss.copy_(error.square().mean())
            self.gradient.add_(2 * error @ inputs / len(inputs))

        if self.device.recording is not None:
            self.device.recording.work = work
        else:
            self.eager += 1
            work()
        return loss


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(torch, "get_device_module", lambda _: device)
    return device


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    draw = [torch.rand(4, 4, generator=generator, dtype=torch.float64) for _ in range(count)]
    return [(part[:, :3], part[:, 3]) for part in draw]


def test_losses_and_gradients_equal_those_of_eager_steps(device: Device) -> None:
    graphed, eager = Problem(device), Problem(Device())
    step = GraphedStep(graphed.step, torch.device("cuda"))
    losses = []
    for inputs, target in batches(WARMUP_STEPS + 4):
        given, wanted = inputs.clone(), target.clone()
        losses.append((step(given, wanted), eager.step(inputs, target)))
        assert torch.equal(graphed.gradient, eager.gradient)
        # The caller's memory is its own again.
        given.zero_()
        wanted.zero_()
    assert graphed.eager == WARMUP_STEPS
    # Later replays leave the losses of earlier steps alone.
    for found, expected in losses:
        assert torch.equal(found, expected)


def test_warming_up_runs_on_streams_of_their_own_in_order(device: Device) -> None:
    step = GraphedStep(Problem(device).step, torch.device("cuda"))
    for inputs, target in batches(WARMUP_STEPS + 2):
        step(inputs, target)
    assert len(device.side) == WARMUP_STEPS
    assert device.main.waited == device.side


def test_a_device_without_graphs_is_refused() -> None:
    with pytest.raises(InputError, match=r"train.cuda_graph needs a device that captures graphs, not cpu; set it fal"):
        GraphedStep(lambda inputs, target: inputs, torch.device("cpu"))


def test_batches_of_another_shape_run_eagerly_and_larger_ones_start_anew(device: Device) -> None:
    graphed, eager = Problem(device), Problem(Device())
    step = GraphedStep(graphed.step, torch.device("cuda"))
    sizes = [3] + [4] * (WARMUP_STEPS + 2) + [2, 4]
    for size, (inputs, target) in zip(sizes, batches(len(sizes)), strict=True):
        assert torch.equal(step(inputs[:size], target[:size]), eager.step(inputs[:size], target[:size]))
        assert torch.equal(graphed.gradient, eager.gradient)
    # The first, which was smaller; those that warmed up; and the short one after the capture.
    assert graphed.eager == 1 + WARMUP_STEPS + 1


def test_a_step_without_a_batch_is_captured_too(device: Device) -> None:
    """Such as that of the optimizer alone, where gradients are added over ranks before it."""
    count = torch.zeros(())

    def work() -> None:
        count.add_(1)

    def step() -> Tensor:
        if device.recording is not None:
            device.recording.work = work
        else:
            work()
        return count

    graphed = GraphedStep(step, torch.device("cuda"))
    assert [float(graphed()) for _ in range(WARMUP_STEPS + 3)] == list(range(1, WARMUP_STEPS + 4))
