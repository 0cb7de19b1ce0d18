"""Training on an accelerator: precisions and captured steps agree, phases add up, memory is the device's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from tests.gpu.run_losses import losses

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

Train = Callable[..., Path]
APPS = ["cosmoflow", "deepcam"]
SGD = ("--optim.name", "sgd", "--optim.lr", "0.001", "--train.max_epochs", "2", "--train.precision", "32-true")
"""Adam's first steps turn the rounding of tiny gradients into whole steps; those of SGD follow the gradient."""


def skip_slow(app: str, precision: str, device: torch.device) -> None:
    """Processors take a minute for convolutions in float16; those of CosmoFlow show that all runs."""
    if device.type == "cpu" and (app, precision) == ("deepcam", "16-mixed"):
        pytest.skip("needs an accelerator: a processor takes too long")


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("app", APPS)
def test_precisions_train_to_the_same_loss(app: str, precision: str, train: Train, device: torch.device) -> None:
    skip_slow(app, precision, device)
    last = []
    for chosen in ("32-true", precision):
        folder = train(app, chosen, "--train.precision", chosen, "--train.max_epochs", "4")
        summary = RunFolder.open(folder).read_summary()
        assert summary.precision == chosen
        epochs = np.array(losses(folder)).reshape(4, -1).mean(axis=1)
        assert epochs[3] < epochs[0]
        last.append(epochs[3])
    # bfloat16 keeps 8 bits: half a per cent in each number, a few per cent in a loss after some steps.
    assert last[1] == pytest.approx(last[0], rel=0.1)


@pytest.mark.parametrize("app", APPS)
def test_the_accelerator_trains_as_the_processor_does(app: str, train: Train, device: torch.device) -> None:
    on_device = train(app, "device", *SGD)
    on_host = train(app, "host", *SGD, "--parallel.accelerator", "cpu")
    # Convolutions may use TensorFloat-32, with 10 bits.
    np.testing.assert_allclose(losses(on_device), losses(on_host), rtol=0.01)
    found = [RunFolder.open(folder).read_summary().device_type for folder in (on_device, on_host)]
    assert found == [device.type, "cpu"]


@pytest.mark.parametrize("settings", [
    pytest.param(("cosmoflow", "--model.dropout", "0.5", "--train.local_batch_size", "2"), id="dropout"),
    pytest.param(("cosmoflow", "--train.local_batch_size", "2", "--train.accumulation", "5"), id="smaller last step"),
    pytest.param(("deepcam", "--train.local_batch_size", "4"), id="batch norm"),
    pytest.param(("deepcam", "--train.local_batch_size", "2", "--parallel.simulated_ranks", "3"), id="simulated ranks"),
    pytest.param(("deepcam", "--train.local_batch_size", "2", "--data.workers", "2"), id="memory pinned meanwhile"),
])  # fmt: skip
def test_a_captured_step_equals_the_eager_one(settings: tuple[str, ...], train: Train, graphs: Any) -> None:
    app, *more = settings
    common = (*SGD, *more, "--data.last_batch", "drop")
    eager = train(app, "eager", *common)
    graphed = train(app, "graphed", *common, "--train.cuda_graph")
    np.testing.assert_allclose(losses(graphed), losses(eager), rtol=1e-4)
    pair = [RunFolder.open(folder).read_summary().metrics for folder in (graphed, eager)]
    assert pair[0] == pytest.approx(pair[1], rel=1e-2, abs=1e-3, nan_ok=True)


@pytest.mark.parametrize("app", APPS)
def test_a_captured_step_in_half_precision(app: str, train: Train, device: torch.device, graphs: Any) -> None:
    skip_slow(app, "16-mixed", device)
    common = (*SGD[:-1], "16-mixed", "--data.last_batch", "drop")
    eager, graphed = train(app, "eager", *common), train(app, "graphed", *common, "--train.cuda_graph")
    np.testing.assert_allclose(losses(graphed), losses(eager), rtol=1e-2)


def test_a_compiled_model_trains_the_same(train: Train) -> None:
    pytest.importorskip("triton", reason="torch.compile on an accelerator needs triton")
    eager, compiled = train("cosmoflow", "eager", *SGD), train("cosmoflow", "compiled", *SGD, "--train.compile")
    np.testing.assert_allclose(losses(compiled), losses(eager), rtol=0.01)


def test_phases_add_up_and_compute_dominates(device: torch.device, tmp_path: Path) -> None:
    """A model that is large for its samples, which are read without decoding."""
    edge, channels = ("16", "64") if device.type == "cpu" else ("64", "256")
    shape = ["--data.sample_size", edge, "--simulate.universe_size", edge, "--data.format", "npy"]
    words = ["cosmoflow", "--preset", "smoke", *shape]
    data = str(tmp_path / "data")
    counts = ["--simulate.train_samples", "32", "--simulate.validation_samples", "4"]
    assert main(["data", "simulate", *words, *counts, "--out", data, "--processes", "4"]) == 0
    settings = ["--model.base_channels", channels, "--train.local_batch_size", "4", "--train.max_epochs", "3",
                "--train.precision", "32-true", "--train.target", "null", "--train.baselines", "false",
                "--train.checkpoint_every", "0", "--train.page", "false", "--data.augment", "false"]  # fmt: skip
    assert main(["train", *words, *settings, "--data.root", data, "--run-dir", str(tmp_path / "run")]) == 0
    summary = RunFolder.open(tmp_path / "run").read_summary()
    phases = summary.phases_s
    assert sum(phases.values()) == pytest.approx(summary.wall_s, rel=1e-9)
    steps = [phases[name] for name in ("input_wait", "communication", "optimizer")]
    assert phases["compute"] > sum(steps)
    assert phases["optimizer"] > 0
    assert 0 <= phases["other"] < 0.1 * (summary.wall_s - phases["init"])


def test_peak_memory_is_the_devices(train: Train, device: torch.device) -> None:
    summary = RunFolder.open(train("cosmoflow", "run", "--optim.name", "adamw")).read_summary()
    # Weights, gradients and two moments in float32, and never more than torch's allocator says.
    assert 4 * 4 * summary.parameters <= summary.peak_memory_bytes
    if device.type != "cpu":
        module = torch.get_device_module(device)
        assert summary.peak_memory_bytes <= module.max_memory_allocated(device)
        assert summary.peak_memory_bytes < module.get_device_properties(0).total_memory


def test_a_run_resumes_on_the_accelerator(train: Train, tmp_path: Path) -> None:
    whole = train("cosmoflow", "whole", *SGD)
    parts = train("cosmoflow", "parts", *SGD, "--train.max_epochs", "1")
    assert main(["train", "cosmoflow", "--run-dir", str(parts), "--resume", "--train.max_epochs", "2"]) == 0
    np.testing.assert_allclose(losses(parts), losses(whole), rtol=1e-5)
