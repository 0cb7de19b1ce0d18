"""A small simulated dataset and short ways to train on it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.cli.main import main

SMALL = ["--simulate.train_samples", "24", "--simulate.validation_samples", "10"]
FAST = ["--train.baselines", "false", "--parallel.threads", "1", "--seed", "5"]
FRESH = ["--train.target", "null", "--train.local_batch_size", "8", "--optim.lr", "0.003"]
"""Settings of a new run, that don't move with the preset; a resumed one has them from its folder."""

Train = Callable[..., int]


@pytest.fixture(scope="session")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 training and 10 validation samples of 16^3 x 4."""
    root = tmp_path_factory.mktemp("data") / "cosmoflow"
    assert (
        main(["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(root), "--processes", "1", *SMALL])
        == 0
    )
    return root


@pytest.fixture
def train(cosmos: Path) -> Train:
    """Train in this process: ``train(folder, *settings)`` gives the exit code."""

    def run(folder: Path, *settings: str) -> int:
        return main(arguments(cosmos, folder, *settings))

    return run


def arguments(data: Path, folder: Path, *settings: str) -> list[str]:
    """The command line of a short run."""
    known = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(data), "--run-dir", str(folder)]
    return [*known, *FAST, *([] if "--resume" in settings else FRESH), *settings]


def start(data: Path, folder: Path, *settings: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """Start a short run in processes of their own, behind the words of a launcher."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [*before, sys.executable, "-m", "hpcbench", *arguments(data, folder, *settings)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(name="start")
def start_fixture(cosmos: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """``start(folder, *settings)`` trains in a process of its own."""

    def run(folder: Path, *settings: str, before: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        return start(cosmos, folder, *settings, before=before)

    return run


def train_in_ranks(ranks: int, commands: list[list[str]]) -> None:
    """Run commands one after the other, each in so many ranks; none may fail."""
    program = Path(__file__).with_name("programs") / "trainings.py"
    done = subprocess.run(
        [sys.executable, str(program), str(ranks), json.dumps(commands)],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
