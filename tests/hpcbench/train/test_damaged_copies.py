"""A staged file that was damaged since ends a training before it is used; a repair mends it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.evaluate import keep_examples
from tests.staging.processes import contents
from tests.staging.spoiled import flip

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
Start = Callable[..., "subprocess.Popen[str]"]
ONE = ("--train.max_epochs", "1")
NPY = ("--staging.transform", "tfrecord-to-npy")


def staged_by(tmp_path: Path) -> tuple[str, ...]:
    """Settings of a run that stages."""
    return ("--staging.destination", str(tmp_path / "local"), *NPY)


def damage(tmp_path: Path, split: str = "train") -> Path:
    """Flip a bit of a staged file; size and time stay."""
    path = sorted((tmp_path / "local" / split).glob("*_data.npy"))[3]
    flip(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "validation"])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_run_ends_and_names_the_file(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], split: str, workers: int
) -> None:
    staged = (*staged_by(tmp_path), "--data.workers", str(workers))
    assert train(tmp_path / "first", *ONE, *staged) == 0
    path = damage(tmp_path, split)
    capsys.readouterr()
    assert train(tmp_path / "second", *ONE, *staged) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert f"{path}: has CRC32C" in line
    assert f"{tmp_path / 'local'} --transform tfrecord-to-npy --repair`, or train with --staging.repair true" in line
    assert train(tmp_path / "third", *ONE, *staged, "--data.check_staged", "false") == 0
    assert train(tmp_path / "fourth", *ONE, *staged, "--staging.repair", "true") == 0
    assert train(tmp_path / "fifth", *ONE, *staged) == 0


@pytest.mark.slow
def test_the_command_that_it_names_mends_it(
    train: Train, cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the run reads a folder that was staged before."""
    words = ["stage", str(cosmos), str(tmp_path / "local"), *("--transform", "tfrecord-to-npy", "--plain", "auto")]
    assert main(words) == 0
    damage(tmp_path)
    read = ("--data.root", str(tmp_path / "local"), "--data.format", "npy")
    assert train(tmp_path / "first", *ONE, *read) == 2
    said = capsys.readouterr().err.split("`")[1]
    assert said == f"hpcbench {' '.join(words)} --repair"
    assert main(said.split()[1:]) == 0
    assert train(tmp_path / "second", *ONE, *read) == 0


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["", "tfrecord-to-npy"])
def test_that_command_brings_nothing_that_the_training_did_not_stage(
    train: Train, cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], transform: str
) -> None:
    assert (cosmos / "simulated.json").exists(), "a file that the training does not read"
    staged = (*ONE, "--staging.destination", str(tmp_path / "local"), "--staging.transform", transform)
    assert train(tmp_path / "first", *staged) == 0
    before = contents(tmp_path / "local")
    flip(tmp_path / "local" / sorted(before)[3])
    assert train(tmp_path / "second", *staged) == 2
    said = capsys.readouterr().err.split("`")[1]
    assert main(said.split()[1:]) == 0
    assert contents(tmp_path / "local") == before
    assert train(tmp_path / "third", *staged) == 0
    assert json.loads((tmp_path / "third/staging.json").read_text())["files"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("split", "code"), [("train", 0), ("validation", 2)])
def test_damage_that_only_the_report_reads_is_told_and_ends_no_run_for_a_count(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, split: str,
    code: int,
) -> None:  # fmt: skip
    """With workers, the first rank itself reads its first samples only once the training is over."""
    damaged: list[Path] = []

    def keep(*args: Any) -> Any:
        damaged.append(min((tmp_path / "local" / split).glob("*_data.npy")))
        flip(damaged[0])
        return keep_examples(*args)

    monkeypatch.setattr("hpcbench.train.finalize.keep_examples", keep)
    staged = (*ONE, *staged_by(tmp_path), "--data.workers", "1")
    assert train(tmp_path / "run", *staged) == code
    out, err = capsys.readouterr()
    said = [line for line in (out + err).splitlines() if f"{damaged[0]}: has CRC32C" in line]
    assert len(said) == 1
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert summary.status == "success"
    if split == "train":
        assert said[0].startswith("operations of a sample are not counted: ")
        assert (summary.flops_forward_per_sample, summary.complete) == (0, True)


@pytest.mark.slow
def test_all_ranks_end(start: Start, train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "first", *ONE, *staged_by(tmp_path)) == 0
    path = damage(tmp_path)
    process = start(tmp_path / "second", *ONE, *staged_by(tmp_path), "--parallel.devices", "2")
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert said.count(f"{path}: has CRC32C") == 1


@pytest.mark.mpi
@pytest.mark.slow
def test_ranks_of_mpi_end(start: Start, train: Train, tmp_path: Path, mpiexec: str) -> None:
    assert train(tmp_path / "first", *ONE, *staged_by(tmp_path)) == 0
    path = damage(tmp_path)
    process = start(tmp_path / "second", *ONE, *staged_by(tmp_path), before=(mpiexec, "-n", "2"))
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert said.count(f"{path}: has CRC32C") == 1


@pytest.mark.slow
def test_a_field_of_deepcam(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the published form, HDF5: values, and the statistics that all samples share."""
    assert main(["data", "simulate", "deepcam", "--preset", "smoke", "--out", str(tmp_path / "data")]) == 0
    run = [
        "train", "deepcam", "--preset", "smoke", "--data.root", str(tmp_path / "data"), "--train.max_epochs", "1",
        "--train.target", "null", "--staging.destination", str(tmp_path / "local"),
    ]  # fmt: skip
    assert main([*run, "--run-dir", str(tmp_path / "first")]) == 0
    for path in (sorted((tmp_path / "local/train").glob("*.h5"))[2], tmp_path / "local/stats.h5"):
        flip(path)
        capsys.readouterr()
        assert main([*run, "--run-dir", str(tmp_path / path.stem)]) == 2
        assert f"{path}: has CRC32C" in capsys.readouterr().err
        assert main([*run, "--run-dir", str(tmp_path / f"{path.stem}-again"), "--staging.repair", "true"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["tfrecord-to-npy", "gunzip+tfrecord-index"])
def test_dali_reads_what_was_staged_and_says_that_it_compares_nothing(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], transform: str
) -> None:
    pytest.importorskip("nvidia.dali")
    said = "DALI does not compare what was staged with its checksums; `hpcbench stage --verify-only` does"
    staged = (*ONE, *staged_by(tmp_path)[:2], "--staging.transform", transform)
    assert train(tmp_path / "first", *staged, "--data.loader", "dali") == 0
    assert capsys.readouterr().out.count(said) == 1
    assert train(tmp_path / "second", *staged) == 0
    assert said not in capsys.readouterr().out
