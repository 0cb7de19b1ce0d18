"""A small simulated dataset and short ways to train on it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from tests.hpcbench.train.rank_processes import RankProcesses

SMALL = ["--simulate.train_samples", "24", "--simulate.validation_samples", "10"]
FAST = ["--train.baselines", "false", "--parallel.threads", "1", "--seed", "5"]
FRESH = ["--train.target", "null", "--train.local_batch_size", "8", "--optim.lr", "0.003"]
"""Settings of a new run, that don't move with the preset; a resumed one has them from its folder."""

Train = Callable[..., int]


@pytest.fixture(scope="module", autouse=True)
def pages_without_drawings(undrawn: None) -> None:
    """The pages of runs in this process; tests/hpcbench/results has the drawings."""


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


def start(
    data: Path, folder: Path, *settings: str, before: tuple[str, ...] = ()
) -> "subprocess.Popen[str] | RankProcesses":
    """Start a short run in processes of its own, behind the words of a launcher or as ``--parallel.devices`` does."""
    words = arguments(data, folder, *settings)
    ranks = int(words[words.index("--parallel.devices") + 1]) if "--parallel.devices" in words else 1
    if ranks > 1 and not before:
        return RankProcesses(ranks, [words])
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [*before, sys.executable, "-m", "hpcbench", *words]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(name="start")
def start_fixture(cosmos: Path) -> Callable[..., "subprocess.Popen[str] | RankProcesses"]:
    """``start(folder, *settings)`` trains in a process of its own."""

    def run(folder: Path, *settings: str, before: tuple[str, ...] = ()) -> "subprocess.Popen[str] | RankProcesses":
        return start(cosmos, folder, *settings, before=before)

    return run


def train_in_ranks(ranks: int, commands: list[list[str]]) -> None:
    """Run commands one after the other, each in so many ranks; none may fail."""
    processes = RankProcesses(ranks, commands)
    said, _ = processes.communicate()
    assert processes.returncode == 0, said
