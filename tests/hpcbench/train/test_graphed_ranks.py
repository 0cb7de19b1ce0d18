"""A captured pass on several ranks: every step's gradients reach the sum over ranks, and so the parameters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.measure.phases import Phases
from hpcbench.parallel.environment import make_fabric
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import Group
from hpcbench.train.build import build_model, build_optimizer
from hpcbench.train.cuda_graph import WARMUP_STEPS
from hpcbench.train.data_path import Batch
from hpcbench.train.observers import StepInfo
from hpcbench.train.training_step import TrainingStep
from hpcbench.train.warm_up import training_pass
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import Launch
from tests.hpcbench.train.graph_recorder import RecordingDevice

CPU = torch.device("cpu")
SIZE = 2
LOADER: Any = SimpleNamespace(parts=False)


class Twins(Group):
    """Two ranks with the same samples, of which one is here."""

    def __init__(self) -> None:
        super().__init__(Launch(world_size=2), CPU, None)

    def all_reduce_sum_async(self, tensor: Tensor) -> None:
        tensor.mul_(2)


def one_of_two(cuda_graph: bool) -> TrainingStep:
    """The training step of a rank whose twin has the same samples."""
    application = find_application("cosmoflow")
    settings = {"data.augment": False, "train.precision": "32-true", "train.cuda_graph": cuda_graph}
    config: Any = resolve(application, "smoke", overrides={**settings, "data.last_batch": "drop"})
    model = build_model(application, config, CPU, 0)
    task = application.module("task").build_task(config)
    precision = make_fabric(Launch(), config)[1]
    run: Any = SimpleNamespace(
        application=application, config=config, task=task, device=CPU, precision=precision, seed=0,
        data_ranks=SimpleNamespace(passes=1, processes=1), phases=Phases(PhaseTimer(), CPU),
        mesh=SimpleNamespace(axes={}, shape=SimpleNamespace(spatial_size=1)),
    )  # fmt: skip
    reducer = GradientReducer(model.parameters(), Twins(), 10_000)
    return TrainingStep(run, model, model, build_optimizer(config, task, model, CPU, precision), reducer)


def train(step: TrainingStep, number: int, passes: int) -> None:
    """A step of so many micro-batches, half of each on this rank."""
    generator = torch.Generator().manual_seed(number)
    for index in range(passes):
        counts = torch.randint(0, 4, (SIZE, 16, 16, 16, 4), generator=generator, dtype=torch.int16)
        targets = torch.rand(SIZE, 4, generator=generator)
        batch = Batch(counts.permute(0, 4, 1, 2, 3), targets, torch.arange(SIZE))
        step.accumulate(batch, LOADER, 1, number, 0.5 / passes, last=index + 1 == passes)
    step.update(StepInfo(number, 2 * SIZE * passes * number, 2 * SIZE * passes, 0.01))


@pytest.mark.parametrize(("warmed_up", "passes"), [
    pytest.param(True, 1, id="captured in the warm-up"),
    pytest.param(False, 1, id="captured in the fourth step"),
    pytest.param(False, WARMUP_STEPS + 1, id="captured within the first step"),
])  # fmt: skip
def test_ranks_that_capture_their_passes_train_as_those_that_do_not(
    warmed_up: bool, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = RecordingDevice()
    monkeypatch.setattr(torch, "get_device_module", lambda _: device)
    captured, eager = one_of_two(True), one_of_two(False)
    if warmed_up:
        for _ in range(WARMUP_STEPS + 1):
            training_pass(captured.run, captured, SIZE, LOADER)
    for number in range(1, WARMUP_STEPS + 4):
        before = [parameter.detach().clone() for parameter in captured.model.parameters()]
        for each in (captured, eager):
            train(each, number, passes)
        for old, one, two in zip(before, captured.model.parameters(), eager.model.parameters(), strict=True):
            assert not torch.equal(old, one)
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)
    assert device.captures == 1
