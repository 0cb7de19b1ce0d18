"""Training runs: what they leave behind, the same numbers for any split of the batch, and continuing bit for bit."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from hpcbench.cli.main import main
from hpcbench.data.files import SPLITS
from hpcbench.mlperf.compliance import check_log
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.checkpoint_io import load_newest

NAMES = ("omega_m", "sigma_8", "n_s", "h_0")
Train = Callable[..., int]


def steps(folder: Path) -> pd.DataFrame:
    return RunFolder.open(folder).read_steps()


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = load_newest(folder / "checkpoints")
    assert found is not None
    return found.model


def test_a_run_leaves_a_folder_that_proves_it(train: Train, cosmos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train(folder, "--train.max_epochs", "3", "--train.target", "10") == 0
    summary = RunFolder.open(folder).read_summary()
    assert summary.status == "success"
    assert (summary.epochs, summary.steps, summary.samples) == (1, 3, 24)
    sizes = [sum(path.stat().st_size for path in (cosmos / split).glob("*.tfrecord*")) for split in SPLITS]
    assert [summary.train_bytes, summary.validation_bytes] == sizes
    assert summary.folder_bytes > 2 * 4 * summary.parameters
    assert summary.epochs_to_target == 1
    assert summary.seed == 5
    assert summary.metrics["mae"] == pytest.approx(np.mean([summary.metrics[f"mae_{name}"] for name in NAMES]))
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "config.yaml", "system.json", "environment.json", "mllog.txt", "steps.csv", "epochs.csv", "summary.json",
        "examples.npz", "scores.npz", "checkpoints", "report.html",
    }  # fmt: skip
    assert len(json.loads((folder / "system.json").read_text())) == 33
    scores = np.load(folder / "scores.npz", allow_pickle=False)["scores"]
    assert len(scores) == 10
    assert check_log(folder / "mllog.txt", "open").official == "own target"


SCALED = ("--optim.scaling", "linear", "--optim.base_batch_size", "2", "--schedule.warmup", "4",
          "--schedule.warmup_unit", "step", "--train.max_epochs", "3")  # fmt: skip


@pytest.mark.slow
def test_the_rate_is_scaled_with_the_batch_and_recorded(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three steps an epoch with batch 8, which is four times the base: the peak is 0.012, after four steps."""
    folder, half = tmp_path / "run", tmp_path / "half"
    assert train(folder, *SCALED) == 0
    assert "global batch 8, peak rate 0.012 (linear scaling), seed 5" in capsys.readouterr().out
    assert steps(folder)["lr"].tolist() == pytest.approx([0.003, 0.006, 0.009, *[0.012] * 6], rel=1e-6)
    found = RunFolder.open(folder)
    assert found.read_summary().peak_lr == pytest.approx(0.012)
    assert '"key": "opt_base_learning_rate", "value": 0.012' in found.mllog.read_text()
    asked = yaml.safe_load(found.config.read_text())["optim"]
    assert (asked["lr"], asked["scaling"], asked["base_batch_size"]) == (0.003, "linear", 2)
    # The same words again, with --resume, are the same run.
    never = ("--train.target", "0")
    assert train(half, *SCALED, *never, "--train.max_epochs", "1") == 3
    assert train(half, *SCALED, *never, "--optim.lr", "0.003", "--resume") == 3
    assert steps(half)["lr"].tolist() == steps(folder)["lr"].tolist()


def test_phases_add_up_to_the_wall_time_and_little_is_unexplained(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--train.max_epochs", "12") == 0
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert sum(summary.phases_s.values()) == pytest.approx(summary.wall_s, rel=1e-9)
    assert summary.phases_s["compute"] > 0
    clocked = summary.wall_s - summary.phases_s["init"] - summary.phases_s["finalize"]
    # What is left is writing tables and logs between phases: small even in epochs of a tenth of a second.
    assert 0 <= summary.phases_s["other"] < 0.25 * clocked
    assert summary.time_to_solution_s == pytest.approx(clocked, rel=0.1, abs=0.1)


def test_a_target_that_is_not_reached_has_its_own_exit_code(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--train.max_epochs", "1", "--train.target", "1e-9") == 3
    assert RunFolder.open(tmp_path / "run").read_summary().status == "target_not_reached"


def test_a_run_without_a_page_has_all_that_one_is_drawn_from(train: Train, tmp_path: Path) -> None:
    """Runs of a study have none: drawing takes longer than a short training."""
    assert train(tmp_path / "run", "--train.page", "false", "--train.max_epochs", "1", "--train.target", "null") == 0
    page = tmp_path / "run" / "report.html"
    assert not page.exists()
    assert main(["report", str(tmp_path / "run")]) == 0
    assert page.exists()


def test_accumulated_batches_equal_one_batch_dropout_included(train: Train, tmp_path: Path) -> None:
    common = ("--train.max_epochs", "2", "--model.dropout", "0.5", "--train.precision", "64-true", "--data.augment")
    assert train(tmp_path / "one", *common, "--train.local_batch_size", "8") == 0
    assert train(tmp_path / "four", *common, "--train.local_batch_size", "2", "--train.accumulation", "4") == 0
    one, four = steps(tmp_path / "one"), steps(tmp_path / "four")
    np.testing.assert_allclose(four["loss"], one["loss"], rtol=1e-9)
    assert (four["samples"] == one["samples"]).all()
    for name, value in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "four")[name], value, rtol=1e-7, atol=1e-9)


def test_a_last_smaller_batch_counts_each_sample_once(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "run", "--train.max_epochs", "1", "--train.local_batch_size", "7") == 0
    assert list(steps(tmp_path / "run")["samples"]) == [7, 14, 21, 24]


@pytest.mark.slow
def test_worker_processes_change_nothing(train: Train, tmp_path: Path) -> None:
    for workers in ("0", "2"):
        assert train(tmp_path / workers, "--train.max_epochs", "1", "--data.workers", workers) == 0
    assert (steps(tmp_path / "0")["loss"] == steps(tmp_path / "2")["loss"]).all()


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(train: Train, tmp_path: Path) -> None:
    common = ("--train.target", "1e-9", "--model.dropout", "0.5", "--data.augment")
    assert train(tmp_path / "whole", *common, "--train.max_epochs", "4") == 3
    assert train(tmp_path / "parts", *common, "--train.max_epochs", "2") == 3
    assert train(tmp_path / "parts", "--resume", "--train.max_epochs", "4") == 3
    assert (steps(tmp_path / "whole")["loss"] == steps(tmp_path / "parts")["loss"]).all()
    for name, value in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "parts")[name], value), name
    summary = RunFolder.open(tmp_path / "parts").read_summary()
    assert (summary.resumed, summary.epochs, summary.steps) == (1, 4, 12)
