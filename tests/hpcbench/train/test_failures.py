"""Runs that go wrong: one line that says why, the right exit code, and nothing lost that was there before."""

import errno
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hpcbench.cli.main import main
from hpcbench.results.checkpoint_files import is_refusal
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.checkpoint_io import check_setup, complete, load_newest
from hpcbench.train.loop import FLUSH_EVERY
from staging.errors import InputError
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
Start = Callable[..., "subprocess.Popen[str]"]


def message(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on standard error."""
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("hpcbench: ")]
    assert len(lines) == 1
    return lines[0]


def refused(train: Train, run: Path, *settings: str) -> bool:
    """Whether resuming a run is refused, and leaves every file of its folder as it was."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    code = train(run, "--resume", *settings)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    return code == 2


def test_no_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert main(["train", "cosmoflow", "--preset", "smoke", "--run-dir", str(run)]) == 2
    assert "no dataset: set --data.root" in message(capsys)
    assert main(["train", "cosmoflow", "--preset", "smoke", "--run-dir", str(run), "--data.root", "/nowhere"]) == 2
    assert "/nowhere" in message(capsys)
    assert not run.exists()


def test_a_batch_larger_than_the_set(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--train.local_batch_size", "10", "--train.accumulation", "3") == 2
    assert "global batch of 30" in (said := message(capsys))
    assert "training set of 24 samples" in said
    assert not (tmp_path / "run").exists()


def test_more_samples_than_there_are(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "run", "--data.train_samples", "25") == 2
    assert "25" in (said := message(capsys))
    assert "24" in said


def test_a_run_folder_is_never_overwritten(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("kept")
    assert train(tmp_path / "run") == 2
    assert "exists and is not empty" in message(capsys)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_damaged_sample_aborts_with_its_name(
    workers: str, cosmos: Path, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(cosmos, copy)
    victim = sorted((copy / "train").glob("*.tfrecord"))[3]
    victim.write_bytes(victim.read_bytes()[:-20])
    settings = ("--data.root", str(copy), "--train.max_epochs", "1", "--data.workers", workers)
    assert train(tmp_path / "run", *settings) == 2
    assert victim.name in message(capsys)
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert summary.status == "aborted"
    assert victim.name in summary.reason
    assert '"status": "aborted"' in (tmp_path / "run" / "mllog.txt").read_text()


@pytest.mark.slow
def test_a_loss_that_is_not_finite_aborts_and_keeps_the_last_good_checkpoint(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert train(run, "--train.max_epochs", "1", "--train.target", "1e-9") == 3
    capsys.readouterr()
    config = run / "config.yaml"
    sane = config.read_text()
    # The largest rate that a configuration may hold, times the largest factor.
    wild = {
        "lr: 0.003": "lr: 1.0e+4", "shape: constant": "shape: multistep", "milestones: []": "milestones: [0]",
        "factors: []": "factors: [1.0e+4]",
    }  # fmt: skip
    text = sane
    for old, new in wild.items():
        assert old in text
        text = text.replace(old, new)
    config.write_text(text)
    assert train(run, "--resume", "--train.max_epochs", "4") == 1
    assert "the loss is nan at step" in message(capsys)
    assert RunFolder.open(run).read_summary().status == "aborted"
    found = load_newest(run / "checkpoints")
    assert found is not None
    assert all(bool(torch.isfinite(value).all()) for value in found.model.values())
    config.write_text(sane)
    assert train(run, "--resume", "--train.max_epochs", "2") == 3
    assert RunFolder.open(run).read_summary().epochs == 2


@pytest.mark.slow
def test_checkpoints_that_must_be_refused(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert train(run, "--train.max_epochs", "2", "--train.target", "1e-9") == 3
    capsys.readouterr()
    for settings, words in (
        (("--parallel.threads", "2", "--train.max_epochs", "3"), ["parallel.threads 1", "this run has 2"]),
        (("--optim.lr", "0.5"), ["optim.lr 0.5", "the run has 0.003"]),
        (("--model.base_channels", "16"), ["model.base_channels 16"]),
    ):
        assert refused(train, run, *settings)
        said = message(capsys)
        assert all(word in said for word in words), said
    config = run / "config.yaml"
    original = config.read_text()
    config.write_text(original.replace("base_channels: 8", "base_channels: 16"))
    assert refused(train, run, "--train.max_epochs", "3")
    assert "from another model" in message(capsys)
    config.write_text(original)
    newest = complete(run / "checkpoints")[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    assert refused(train, run, "--train.max_epochs", "3")
    assert f"{newest.name}: damaged checkpoint" in message(capsys)
    newest.unlink()
    newest.with_suffix(".json").unlink()
    assert train(run, "--resume", "--train.max_epochs", "3") == 3
    assert RunFolder.open(run).read_summary().epochs == 3


def test_a_validation_set_that_shrank(
    cosmos: Path, train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(cosmos, copy)
    common = ("--data.root", str(copy), "--train.target", "1e-9")
    assert train(run, *common, "--train.max_epochs", "1") == 3
    sorted((copy / "validation").glob("*.tfrecord"))[-1].unlink()
    capsys.readouterr()
    assert refused(train, run, "--data.root", str(copy), "--train.max_epochs", "2")
    assert message(capsys) == (
        "hpcbench: error: the checkpoint was made with validation samples 10, this run has 9; use the same validation "
        "samples"
    )


def test_a_run_is_not_resumed_with_data_that_were_simulated_otherwise(
    train: Train, cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a relative ``data.root`` names another folder."""
    run, copy = tmp_path / "run", tmp_path / "copy"
    shutil.copytree(cosmos, copy)
    common = ("--data.root", str(copy), "--train.target", "1e-9")
    assert train(run, *common, "--train.max_epochs", "1") == 3
    made = json.loads((copy / "simulated.json").read_text(encoding="utf-8"))
    before = made["simulate"]["seed"]
    made["simulate"]["seed"] = before + 1
    (copy / "simulated.json").write_text(json.dumps(made), encoding="utf-8")
    kept = (run / "mllog.txt").read_bytes()
    capsys.readouterr()
    assert refused(train, run, "--data.root", str(copy), "--train.max_epochs", "2")
    assert message(capsys) == (
        f"hpcbench: error: the checkpoint was made with data whose simulate.seed is {before}, this run's has "
        f"{before + 1}; give --data.root of the dataset that it was made with"
    )
    assert (run / "mllog.txt").read_bytes() == kept
    (copy / "simulated.json").unlink()
    assert train(run, *common, "--train.max_epochs", "2", "--resume") == 3, "a copy may lack the record"
    simulated = json.loads((run / "summary.json").read_text(encoding="utf-8"))["simulated_data"]
    assert simulated == ""


def test_a_checkpoint_of_an_earlier_version_does_not_say_how_many_validation_samples_there_were() -> None:
    found = {"training samples": 24}
    assert check_setup(found, {"training samples": 24, "validation samples": 10}, 1) is False
    with pytest.raises(InputError, match="made with training samples 24, this run has 23") as error:
        check_setup(found, {"training samples": 23, "validation samples": 10}, 1)
    assert not is_refusal(str(error.value))  # a study keeps the checkpoint for the time when the dataset is whole again


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_again(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert train(run, "--train.max_epochs", "1", "--train.target", "1e-9") == 3
    capsys.readouterr()
    (run / ".reserve").mkdir()
    assert refused(train, run, "--train.max_epochs", "2")
    assert message(capsys) == f"hpcbench: error: {run}/.reserve: is a folder, not a file; remove it"
    (run / ".reserve").rmdir()

    def full(folder: RunFolder) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RunFolder, "reserve", full)
    assert refused(train, run, "--train.max_epochs", "2")
    assert message(capsys) == (
        f"hpcbench: error: run folder {run} cannot be written (No space left on device); free some space there, or "
        "check its permissions"
    )
    monkeypatch.undo()
    assert train(run, "--resume", "--train.max_epochs", "2") == 3


@pytest.mark.slow
def test_attempts_that_took_no_finite_time(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    assert train(run, "--train.max_epochs", "1", "--train.target", "1e-9") == 3
    capsys.readouterr()
    path = run / "attempts.json"
    (known,) = json.loads(text := path.read_text())["attempts"]
    for value, problem in (
        ("NaN", "NaN is not a finite number"), ("-Infinity", "-Infinity is not a finite number"),
        ("1e999", "1e999 is not a finite number"), ("null", "wall_s (null) must be a number"),
    ):  # fmt: skip
        path.write_text(text.replace(f'"wall_s": {known["wall_s"]!r}', f'"wall_s": {value}', 1))
        assert refused(train, run, "--train.max_epochs", "2")
        assert message(capsys) == (
            f"hpcbench: error: {path}: is damaged ({problem}); remove it to resume without the figures of earlier "
            "attempts"
        )
    path.write_text(text)
    assert train(run, "--resume", "--train.max_epochs", "2") == 3


def test_nothing_to_resume(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "gone", "--resume") == 2
    assert "does not exist" in message(capsys)
    assert (
        train(tmp_path / "run", "--train.max_epochs", "1", "--train.target", "1e-9", "--train.checkpoint_every", "0")
        == 3
    )
    capsys.readouterr()
    assert train(tmp_path / "run", "--resume") == 2
    assert "holds no checkpoint" in message(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("number", slow_except([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]))
def test_a_signal_ends_a_run_that_then_resumes_as_if_nothing_was(
    number: signal.Signals, start: Start, train: Train, tmp_path: Path
) -> None:
    common = ("--train.target", "1e-9", "--train.local_batch_size", "1")
    process = start(tmp_path / "run", *common, "--train.max_epochs", "1000")
    wait_for(tmp_path / "run" / "epochs.csv", process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert f"aborted: signal {number.name}" in output
    folder = RunFolder.open(tmp_path / "run")
    assert folder.read_summary().reason == f"signal {number.name}"
    last = json.loads((folder.mllog).read_text().splitlines()[-1].removeprefix(":::MLLOG "))
    assert (last["key"], last["metadata"]["status"]) == ("run_stop", "aborted")
    found = load_newest(folder.checkpoints)
    assert found is not None
    until = str(found.state["epoch"] + 2)
    assert train(tmp_path / "run", "--resume", "--train.max_epochs", until) == 3
    assert train(tmp_path / "whole", *common, "--train.max_epochs", until) == 3
    whole = RunFolder.open(tmp_path / "whole").read_steps()
    assert (whole["loss"] == folder.read_steps()["loss"]).all()
    assert len(whole) == int(until) * 24 > FLUSH_EVERY


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """A filesystem of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_aborts_readably_and_keeps_the_last_checkpoint(
    small_disk: Path, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_disk / "run"
    # A checkpoint takes about 740 kB: the second does not fit beside the first.
    assert train(run, "--train.max_epochs", "3", "--train.target", "1e-9") == 1
    assert "no space left on the disk" in message(capsys)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.cause) == ("aborted", "full_disk")
    assert "no space left" in summary.reason
    found = load_newest(run / "checkpoints")
    assert found is not None
    assert found.state["epoch"] == 1
