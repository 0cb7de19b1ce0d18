"""A whole step as one graph trains as the eager step does, bit for bit, on a device that records as real ones do."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import OptimConfig, RunConfig, TrainConfig
from hpcbench.optim.clip import clip_divisor
from hpcbench.optim.registry import create_optimizer, load_optimizer_state, parameter_kinds
from hpcbench.results.run_folder import RunFolder
from hpcbench.train import measurements
from hpcbench.train.checkpoint_io import load_newest
from hpcbench.train.cuda_graph import WARMUP_STEPS
from hpcbench.train.measurement import Measurement, ObserverInputs
from hpcbench.train.observers import StepInfo, StepObserver
from hpcbench.train.training_step import TrainingStep
from hpcbench.train.whole_step import WholeStep, captures_whole_step
from tests.hpcbench.train.graph_recorder import RecordingDevice

CPU = torch.device("cpu")
STEPS = WARMUP_STEPS + 4
CONVOLUTIONS = 3
"""Of the model of the smoke preset of CosmoFlow."""


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> RecordingDevice:
    device = RecordingDevice()
    monkeypatch.setattr(torch, "get_device_module", lambda _: device)
    return device


class Training:
    """An application's small model with an optimizer, in float32 or bf16, stepped whole."""

    def __init__(
        self, app: str, optimizer: str, capture: bool, bf16: bool, clip: float, capturable: bool | None = None
    ) -> None:
        application = find_application(app)
        sizes = {"data.height": 32, "data.width": 32} if app == "deepcam" else {"data.augment": False}
        config: Any = resolve(application, "smoke", overrides=sizes)
        torch.manual_seed(0)
        self.model: nn.Module = application.module("model").build_model(config)
        self.task = application.module("task").build_task(config)
        if app == "deepcam":
            self.task.set_range(torch.zeros(16), torch.ones(16))
        chosen = OptimConfig(name=optimizer, lr=0.01, weight_decay=0.01)
        groups = self.task.parameter_groups(self.model)
        capturable = capture if capturable is None else capturable
        self.optimizer = create_optimizer(chosen, groups, CPU, capturable, parameter_kinds(self.model))
        self.bf16 = bf16
        self.largest = clip
        self.step = WholeStep(self.gradients, self.optimizer, CPU, clip=self.clip if clip else None, capture=capture)

    def clip(self) -> None:
        """As on an accelerator; on a processor the suite sums squares on the host, which cannot be captured."""
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_div_(gradients, clip_divisor(norm, self.largest))

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        prepared, target = self.task.prepare(inputs, targets, None)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            output = self.model(prepared)
        loss: Tensor = self.task.loss(output.float(), target)
        loss.backward()
        return loss.detach()


def batch(app: str, number: int, size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    if app == "cosmoflow":
        counts = torch.randint(0, 4, (size, 16, 16, 16, 4), generator=generator, dtype=torch.int16)
        return counts.permute(0, 4, 1, 2, 3), torch.rand(size, 4, generator=generator)
    fields = torch.rand(size, 32, 32, 16, generator=generator).permute(0, 3, 1, 2)
    return fields, torch.randint(0, 3, (size, 32, 32), generator=generator)


@pytest.mark.parametrize(("app", "optimizer", "bf16", "clip"), [
    pytest.param("cosmoflow", "sgd", False, 0.0, id="sgd"),
    pytest.param("cosmoflow", "sgd", True, 0.05, id="sgd, bf16, clipped"),
    pytest.param("cosmoflow", "adamw", False, 0.0, id="adamw"),
    pytest.param("deepcam", "adamw", True, 0.1, id="batch norm, bf16, clipped", marks=pytest.mark.slow),
])  # fmt: skip
def test_a_captured_whole_step_is_the_eager_one(
    app: str, optimizer: str, bf16: bool, clip: float, device: RecordingDevice
) -> None:
    # In bf16 the last digit of a weight decides how it is rounded, so there both have the optimizer that is captured.
    eager = Training(app, optimizer, False, bf16, clip, capturable=bf16)
    captured = Training(app, optimizer, True, bf16, clip)
    losses = []
    for number in range(STEPS):
        rate = 0.01 / (1 + number)  # which a captured number would not follow
        # One batch is shorter, as the last of an epoch, and comes between others.
        data = batch(app, number, 2 if number == STEPS - 2 else 3)
        losses.append((captured.step(rate, *(t.clone() for t in data)), eager.step(rate, *data)))
        for one, two in zip(captured.model.state_dict().values(), eager.model.state_dict().values(), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    assert device.captures == 1
    # Later steps leave the losses of earlier ones alone.
    for one, two in losses:
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_a_rate_that_is_a_number_is_refused(device: RecordingDevice) -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    with pytest.raises(ValueError, match="keep the learning rate as it is: make the optimizer capturable"):
        WholeStep(lambda x: x, optimizer, CPU)


def test_a_capture_refuses_to_wait_for_the_device(device: RecordingDevice) -> None:
    """As a real one does: else the tests above would accept what cannot be captured."""
    training = Training("cosmoflow", "sgd", True, False, 0.0)
    training.step.clip = lambda: next(training.model.parameters()).detach().sum().item()
    for number in range(WARMUP_STEPS):
        training.step(0.01, *batch("cosmoflow", number, 2))
    with pytest.raises(AssertionError, match="would wait for the device"):
        training.step(0.01, *batch("cosmoflow", WARMUP_STEPS, 2))


WHOLE = ("--train.max_epochs", "2", "--data.last_batch", "drop", "--train.precision", "32-true")


def losses(folder: Path) -> list[float]:
    return [float(line.split(",")[4]) for line in RunFolder(folder).steps.read_text().splitlines()[1:]]


def same_end(one: Path, other: Path) -> None:
    assert losses(one) == pytest.approx(losses(other), rel=1e-5)
    kept = [load_newest(path / "checkpoints") for path in (one, other)]
    for name, value in kept[0].model.items():
        torch.testing.assert_close(value, kept[1].model[name], rtol=1e-4, atol=1e-5)
    for key, state in kept[0].optimizer["state"].items():
        for name, value in state.items():
            torch.testing.assert_close(torch.as_tensor(value), torch.as_tensor(kept[1].optimizer["state"][key][name]),
                                       rtol=1e-3, atol=1e-5)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adamw", marks=pytest.mark.slow)])
def test_a_run_that_captures_its_step_trains_as_one_that_does_not(
    optimizer: str, train: Callable[..., int], tmp_path: Path, device: RecordingDevice
) -> None:
    """The documented setting, end to end: dropout, a rate that changes, the warm-up that leaves no trace."""
    words = (*WHOLE, "--optim.name", optimizer, "--model.dropout", "0.5", "--schedule.warmup", "1")
    assert train(tmp_path / "eager", *words) == 0
    assert train(tmp_path / "whole", *words, "--train.cuda_graph", "true") == 0
    assert device.captures == 1
    same_end(tmp_path / "whole", tmp_path / "eager")
    for name, told in (("eager", False), ("whole", True)):
        assert ("has the optimizer&#39;s part of it" in RunFolder(tmp_path / name).report.read_text()) is told


@pytest.mark.slow
def test_an_update_that_reads_the_rate_on_the_host_stays_out_of_the_graph(
    train: Callable[..., int], tmp_path: Path, device: RecordingDevice
) -> None:
    """torch's loop of sgd does, which a capture refuses; the option "CUDA graph" of a gains study has it."""
    words = (*WHOLE, "--optim.name", "sgd", "--optim.fused", "false", "--train.max_epochs", "1")
    assert train(tmp_path / "eager", *words) == 0
    assert train(tmp_path / "graph", *words, "--train.cuda_graph", "true") == 0
    assert device.captures == 1
    same_end(tmp_path / "graph", tmp_path / "eager")


@pytest.mark.parametrize(
    ("optimizer", "fused", "whole"), [("sgd", False, False), ("sgd", True, True), ("adamw", False, True)]
)
def test_a_graph_holds_the_update_if_it_reads_the_rate_on_the_device(optimizer: str, fused: bool, whole: bool) -> None:
    config = RunConfig(train=TrainConfig(cuda_graph=True), optim=OptimConfig(name=optimizer, fused=fused))
    assert captures_whole_step(config, 1, 1, observed=False) is whole


@pytest.mark.slow
def test_a_trace_of_whole_steps_has_as_many_as_were_asked_for(
    train: Callable[..., int], tmp_path: Path, device: RecordingDevice
) -> None:
    asked = ("--measure.profile_steps", "2", "--measure.warmup_steps", "1", "--train.cuda_graph", "true")
    assert train(tmp_path / "run", *WHOLE, *asked) == 0
    assert device.captures == 1
    with gzip.open(tmp_path / "run" / "trace.json.gz", "rt") as file:
        names = [event.get("name", "") for event in json.load(file)["traceEvents"]]
    assert sum(name == "aten::convolution_backward" for name in names) == 2 * CONVOLUTIONS


class Gradients(StepObserver):
    """Notes whether there are gradients when the optimizer is called."""

    def __init__(self, step: TrainingStep) -> None:
        self.step = step
        self.gradients_exist: list[bool] = []

    def before_optimizer(self, info: StepInfo) -> None:
        self.gradients_exist.append(all(each.grad is not None for each in self.step.model.parameters()))


@pytest.mark.slow
def test_a_measurement_of_gradients_keeps_the_optimizer_out_of_the_graph(
    train: Callable[..., int], tmp_path: Path, device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Gradients] = []

    def make(parts: ObserverInputs) -> Gradients:
        made.append(Gradients(parts.step))
        return made[0]

    entry = Measurement(Gradients, lambda _: True, make)
    monkeypatch.setattr(measurements, "MEASUREMENTS", (*measurements.MEASUREMENTS, entry))
    assert train(tmp_path / "run", *WHOLE, "--train.cuda_graph", "true") == 0
    assert made[0].gradients_exist == [True] * len(losses(tmp_path / "run"))
    assert made[0].step.whole_step is None
    assert device.captures == 1


@pytest.mark.slow
def test_a_run_that_captures_its_step_goes_on_as_if_nothing_was(
    train: Callable[..., int], tmp_path: Path, device: RecordingDevice
) -> None:
    words = (*WHOLE, "--optim.name", "adamw", "--train.cuda_graph", "true")
    assert train(tmp_path / "once", *words) == 0
    assert train(tmp_path / "twice", *words, "--train.max_epochs", "1") == 0
    assert train(tmp_path / "twice", "--resume", "--train.max_epochs", "2") == 0
    assert device.captures == 3
    same_end(tmp_path / "twice", tmp_path / "once")


@pytest.mark.parametrize("first", [False, True])
def test_a_state_goes_from_a_captured_step_to_an_eager_one_and_back(first: bool, device: RecordingDevice) -> None:
    """As where a run goes on with another number of processes."""
    trainings = [Training("cosmoflow", "adamw", capture, False, 0.0) for capture in (first, not first)]
    for number in range(STEPS):
        trainings[0].step(0.01, *batch("cosmoflow", number, 2))
    trainings[1].model.load_state_dict(trainings[0].model.state_dict())
    load_optimizer_state(trainings[1].optimizer, copy.deepcopy(trainings[0].optimizer.state_dict()))
    for number in range(STEPS):
        for each in trainings:
            each.step(0.02, *batch("cosmoflow", STEPS + number, 2))
    for one, two in zip(*(each.model.parameters() for each in trainings), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
