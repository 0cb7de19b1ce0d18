"""One process that simulates ranks computes what these would, over an epoch, with every optimizer.

DeepCAM, whose batch norm keeps statistics of each rank, runs with three of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.cli.main import main
from hpcbench.config.optimizers import OPTIMIZERS
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.checkpoint_io import load_newest
from hpcbench.train.loop import Trainer
from tests.hpcbench.train.conftest import train_in_ranks

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
COMMON = (
    "--preset", "smoke", "--train.baselines", "false", "--parallel.threads", "1", "--seed", "5", "--train.target",
    "null", "--train.precision", "64-true", "--train.max_epochs", "1", "--train.local_batch_size", "2", "--optim.lr",
    "0.003", "--optim.weight_decay", "0.01", "--parallel.bucket_bytes", "1000000000",
)  # fmt: skip
APPLICATIONS = {
    # The last step has 7 of 8 samples, and 2 of 8: a rank has one less, or ranks have none.
    "cosmoflow": ("--model.dropout", "0.5", "--data.augment", "true", "--data.train_samples", "23"),
    "deepcam": ("--model.width_factor", "0.125"),
}
VARIANTS = {
    "accumulating": ("--train.local_batch_size", "1", "--train.accumulation", "2", "--train.max_epochs", "2"),
    "pairs": ("--train.batchnorm_group_size", "2", "--train.max_epochs", "2"),
    "one-group": ("--train.batchnorm_group_size", "4", "--train.max_epochs", "2"),
}
DEEPCAM = ("sgd", "adamw", "lamb")
RUNS = {
    **{f"cosmoflow-{name}": ("cosmoflow", ("--optim.name", name)) for name in OPTIMIZERS},
    **{f"deepcam-{name}": ("deepcam", ("--optim.name", name)) for name in DEEPCAM},
    **{f"deepcam-{name}": ("deepcam", settings) for name, settings in VARIANTS.items()},
}
QUICK = ["deepcam-adamw", "deepcam-accumulating"]
SLOW = [name for name in RUNS if name not in QUICK]
SHARED = ["cosmoflow-sgd", *QUICK, "deepcam-pairs", "deepcam-one-group"]
"""Runs that are also split over real and simulated ranks."""
Trained = Callable[[str], Path]


def marked(names: list[str]) -> list[Any]:
    """The names as parameters, those of slow runs marked."""
    return [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in names]


@pytest.fixture(scope="module")
def roots(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of each application."""
    root = tmp_path_factory.mktemp("data") / "deepcam"
    sizes = ("--simulate.train_samples", "10", "--simulate.validation_samples", "3")
    assert (
        main(["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(root), "--processes", "1", *sizes]) == 0
    )
    return {"cosmoflow": cosmos, "deepcam": root}


def words(roots: dict[str, Path], name: str, folder: Path, *more: str) -> list[str]:
    """The command line of a run."""
    app, settings = RUNS[name]
    place = ("--data.root", str(roots[app]), "--run-dir", str(folder))
    return ["train", app, *place, *COMMON, *APPLICATIONS[app], *settings, *more]


def trained(roots: dict[str, Path], base: Path, ranks: int, names: list[str], *more: str) -> Trained:
    """Gives the folder of a run on so many ranks; the quick ones, and the slow ones, are made together when needed."""

    def folder(name: str) -> Path:
        if not (base / name).exists():
            together = [each for each in names if (each in QUICK) == (name in QUICK)]
            train_in_ranks(ranks, [words(roots, each, base / each, *more) for each in together])
        return base / name

    return folder


@pytest.fixture(scope="module")
def real(roots: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Runs on four ranks."""
    return trained(roots, tmp_path_factory.mktemp("real"), 4, [*RUNS])


@pytest.fixture(scope="module")
def half(roots: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Runs on two ranks that simulate two each."""
    return trained(roots, tmp_path_factory.mktemp("half"), 2, SHARED, "--parallel.simulated_ranks", "2")


def same(one: Path, other: Path) -> None:
    """Losses, samples and metrics of two runs agree."""
    steps, expected = (RunFolder.open(folder).read_steps() for folder in (one, other))
    np.testing.assert_allclose(steps["loss"], expected["loss"], rtol=1e-9)
    assert (steps["samples"] == expected["samples"]).all()
    found, wanted = (RunFolder.open(folder).read_summary() for folder in (one, other))
    assert found.metrics == pytest.approx(wanted.metrics, rel=1e-9, abs=1e-9, nan_ok=True)
    assert found.global_batch_size == wanted.global_batch_size


@pytest.mark.slow
@pytest.mark.parametrize("name", marked([*RUNS]))
def test_one_process_computes_what_four_ranks_do(
    name: str, roots: dict[str, Path], real: Trained, tmp_path: Path
) -> None:
    assert main(words(roots, name, tmp_path / "one", "--parallel.simulated_ranks", "4")) == 0
    same(tmp_path / "one", real(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", marked(SHARED))
def test_two_processes_that_simulate_two_compute_what_four_ranks_do(name: str, real: Trained, half: Trained) -> None:
    same(half(name), real(name))


@pytest.mark.slow
def test_plain_accumulation_computes_the_same_without_batch_norm(
    roots: dict[str, Path], real: Trained, tmp_path: Path
) -> None:
    assert main(words(roots, "cosmoflow-lamb", tmp_path / "one", "--train.accumulation", "4")) == 0
    same(tmp_path / "one", real("cosmoflow-lamb"))


@pytest.mark.slow
def test_gradients_travel_once_a_step(real: Trained, half: Trained) -> None:
    for folder in (real("deepcam-accumulating"), half("deepcam-accumulating")):
        steps = RunFolder.open(folder).read_summary().steps
        assert int((folder / "collectives").read_text()) == steps == 4


@pytest.mark.slow
def test_group_sizes_make_a_difference_and_are_logged(real: Trained) -> None:
    losses = {name: RunFolder.open(real(f"deepcam-{name}")).read_steps()["loss"][0] for name in VARIANTS}
    assert losses["pairs"] != pytest.approx(losses["one-group"], rel=1e-6)
    assert logged(real("deepcam-pairs"), "batchnorm_group_size") == 2


def logged(folder: Path, key: str) -> object:
    """The value of a key of the official log."""
    events = [json.loads(line.split(" ", 1)[1]) for line in (folder / "mllog.txt").read_text().splitlines()]
    return next(event["value"] for event in events if event["key"] == key)


def test_a_run_says_that_its_ranks_are_simulated(
    roots: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    simulated = ("--parallel.simulated_ranks", "4", "--parallel.simulated_nodes", "2")
    assert main(words(roots, "cosmoflow-sgd", folder, *simulated)) == 0
    assert "1 rank simulating 4 x 1 thread on " in capsys.readouterr().out
    summary = RunFolder.open(folder).read_summary()
    assert (summary.world_size, summary.simulated_ranks, summary.nodes, summary.simulated_nodes) == (1, 4, 1, 2)
    assert summary.global_batch_size == 8
    assert [logged(folder, key) for key in ("global_batch_size", "number_of_ranks", "number_of_nodes")] == [8, 1, 1]
    assert logged(folder, "simulated_ranks") == 4
    assert "1 rank simulating 4 x 2" in (folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [0, 1])
def test_a_resumed_run_goes_on_with_the_statistics_of_each_rank(
    stop_after: int, roots: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated = ("--parallel.simulated_ranks", "2", "--train.max_epochs", "2")
    assert main(words(roots, "deepcam-sgd", tmp_path / "whole", *simulated)) == 0
    stop = Trainer.stop_if_asked

    def stop_early(trainer: Trainer) -> None:
        import signal

        if trainer.state.step == 3 + stop_after and not trainer.state.resumed:
            signal.raise_signal(signal.SIGUSR1)
        stop(trainer)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "stop_if_asked", stop_early)
        assert main(words(roots, "deepcam-sgd", tmp_path / "parts", *simulated)) == 128 + 10
    kept = load_newest(tmp_path / "parts" / "checkpoints")
    assert kept is not None
    assert len(kept.statistics) == 2
    differ = [not torch.equal(*pair) for pair in zip(*kept.statistics, strict=True)]
    assert any(differ), "each rank has seen other samples in the epoch under way"
    assert main(["train", "deepcam", "--run-dir", str(tmp_path / "parts"), "--resume"]) == 0
    whole, parts = (RunFolder.open(tmp_path / name) for name in ("whole", "parts"))
    assert (whole.read_steps()["loss"] == parts.read_steps()["loss"]).all()
    assert whole.read_summary().metrics == pytest.approx(parts.read_summary().metrics, rel=0, abs=0, nan_ok=True)
    other = ["train", "deepcam", "--run-dir", str(tmp_path / "parts"), "--resume", "--train.max_epochs", "3"]
    assert main([*other, "--parallel.simulated_ranks", "4"]) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("--parallel.simulated_ranks", "12"),
            "global batch of 24 (train.local_batch_size 2 x train.accumulation 1 x 12 ranks) is larger than the "
            "training set of 23 samples; lower train.local_batch_size, or use more samples",
        ),
        (
            ("--parallel.simulated_ranks", "3", "--train.accumulation", "4"),
            "global batch of 24 (train.local_batch_size 2 x train.accumulation 4 x 3 ranks) is larger than the "
            "training set of 23 samples; lower train.local_batch_size or train.accumulation, or use more samples",
        ),
        (("--parallel.simulated_ranks", "0"), "parallel.simulated_ranks (0) must be at least 1"),
        (("--train.batchnorm_group_size", "0"), "train.batchnorm_group_size (0) must be at least 1"),
        (("--train.batchnorm_group_size", "2"), "train.batchnorm_group_size (2) must divide the number of ranks (1)"),
        (
            ("--parallel.simulated_ranks", "4", "--train.batchnorm_group_size", "3"),
            "train.batchnorm_group_size (3) must divide the number of ranks (4)",
        ),
        (
            ("--train.batchnorm_group_size", "2", "--train.cuda_graph", "true", "--data.last_batch", "drop"),
            "train.cuda_graph captures no messages, which batch norm over train.batchnorm_group_size (2) ranks needs",
        ),
    ],
)
def test_settings_that_cannot_be_formed(
    settings: tuple[str, ...],
    message: str,
    roots: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(words(roots, "cosmoflow-sgd", tmp_path / "run", *settings)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
