"""An accelerator for the tests of this folder, which are skipped without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hpcbench.cli.main import main

Train = Callable[..., Path]


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The accelerator that torch finds."""
    if not torch.accelerator.is_available():
        pytest.skip("needs an accelerator that this torch can use (torch.accelerator.is_available() is false)")
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return found


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
        fixed = ["--train.target", "null", "--train.baselines", "false", "--seed", "5", "--data.workers", "0"]
        assert main([*words, *fixed, *settings]) == 0
        return tmp_path / name

    return run
