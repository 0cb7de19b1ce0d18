"""An accelerator for the tests of this folder, which are skipped without one, or tried on the processor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcbench.cli.main import main
from tests.hpcbench.train.graph_recorder import RecordingDevice

Train = Callable[..., Path]
ON_PROCESSOR = "HPCBENCH_GPU_TESTS_ON_PROCESSOR"
"""Where the environment has it, the tests run on the processor without an accelerator."""


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The accelerator that torch finds, or the processor where that is asked for."""
    if not torch.accelerator.is_available():
        if os.environ.get(ON_PROCESSOR):
            return torch.device("cpu")
        pytest.skip("needs an accelerator that this torch can use (torch.accelerator.is_available() is false)")
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return found


@pytest.fixture
def graphs(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The torch module of a device that captures graphs; on the processor, one that records operations."""
    if device.type == "cpu":
        module: Any = RecordingDevice()
        monkeypatch.setattr(torch, "get_device_module", lambda _: module)
        return module
    module = torch.get_device_module(device)
    if not hasattr(module, "CUDAGraph"):
        pytest.skip(f"needs an accelerator whose torch module captures graphs, not {device.type}")
    return module


@pytest.fixture
def no_waiting(device: torch.device) -> Callable[[], AbstractContextManager[None]]:
    """Where the host may not wait for the device: torch raises there. Nobody waits for a processor."""
    if device.type == "cpu":
        return nullcontext
    module = torch.get_device_module(device)
    if not hasattr(module, "set_sync_debug_mode"):
        pytest.skip(f"needs an accelerator whose torch module tells of waiting, not {device.type}")

    @contextmanager
    def checked() -> Iterator[None]:
        module.set_sync_debug_mode("error")
        try:
            yield
        finally:
            module.set_sync_debug_mode("default")

    return checked


@pytest.fixture(scope="session")
def datasets(device: torch.device, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small datasets of both applications, by name: 24 training and 10 validation samples."""
    roots = {}
    for app in ("cosmoflow", "deepcam"):
        roots[app] = tmp_path_factory.mktemp("data") / app
        words = ["data", "simulate", app, "--preset", "smoke", "--out", str(roots[app]), "--processes", "4"]
        assert main([*words, "--simulate.train_samples", "24", "--simulate.validation_samples", "10"]) == 0
    return roots


@pytest.fixture
def train(datasets: dict[str, Path], tmp_path: Path) -> Train:
    """``train(app, name, *settings)`` trains on the accelerator and returns the run folder."""

    def run(app: str, name: str, *settings: str) -> Path:
        words = [
            "train",
            app,
            "--preset",
            "smoke",
            "--data.root",
            str(datasets[app]),
            "--run-dir",
            str(tmp_path / name),
        ]
        fixed = ["--train.target", "null", "--train.baselines", "false", "--train.page", "false", "--seed", "5",
                 "--data.workers", "0"]  # fmt: skip
        assert main([*words, *fixed, *settings]) == 0
        return tmp_path / name

    return run
