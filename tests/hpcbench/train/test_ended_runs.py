"""Runs that came to their end: the report is completed, another target is met, and more epochs are trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.results.run_folder import RunFolder
from hpcbench.train import loop
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.interrupted import attempts, newest, plan, same_run

pytestmark = pytest.mark.usefixtures("forked_processes")
Train = Callable[..., int]
STOCHASTIC = ("--model.dropout", "0.5", "--data.augment", "true")
NEVER = ("--train.target", "1e-9")


@pytest.mark.slow
@pytest.mark.parametrize(("where", "name", "code"), [
    ("baselines", "SIGKILL", -9), ("page", "SIGTERM", 143),
])  # fmt: skip
def test_a_run_that_was_ended_after_its_clock_is_completed(
    where: str, name: str, code: int, cosmos: Path, tmp_path: Path
) -> None:
    """And a third attempt finds nothing to do."""
    folder = tmp_path / "run"
    common = ("--train.baselines", "true", "--train.max_epochs", "1", "--train.target", "10")
    resume = arguments(cosmos, folder, "--resume", "--train.baselines", "true")
    (first,) = attempts({"words": arguments(cosmos, folder, *common), "plan": plan(where, 1, name)})
    assert first["codes"] == [code], first
    log, before = (folder / "mllog.txt").read_text(), RunFolder.open(folder).read_summary()
    assert (before.status, before.cause, before.complete) == ("success", "target", False)
    assert not (folder / "report.html").exists()
    found = attempts({"words": resume}, {"words": resume}, {"words": [*resume, "--resume-or-start"]})
    assert [each["codes"] for each in found] == [[0], [2], [0]], found
    assert (folder / "mllog.txt").read_text() == log
    after = RunFolder.open(folder).read_summary()
    assert after.time_to_solution_s == before.time_to_solution_s
    assert (after.metrics, after.epochs_to_target, after.complete) == (before.metrics, 1, True)
    assert set(after.baselines) == {"predict the mean", "ridge regression on power spectra"}
    assert (folder / "report.html").stat().st_size > 1000
    assert found[1]["said"] == (
        f"hpcbench: error: the run in {folder} has reached its target; leave out --resume and use a new --run-dir\n"
    )
    assert found[2]["said"] == f"the run in {folder} has reached its target; nothing is left to do\n"


@pytest.mark.slow
def test_epochs_to_target_are_those_of_the_first_evaluation_that_met_it_whatever_it_was_then(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metric falls from epoch to epoch here, whatever the model has learned."""
    folder, real, epochs = tmp_path / "run", loop.evaluate, iter((1, 2, 3, 4, 1, 2, 3, 4))

    def evaluate(*words: Any) -> tuple[Any, dict[str, float]]:
        scores, metrics = real(*words)
        return scores, {**metrics, "mae": 1 / next(epochs)}

    monkeypatch.setattr(loop, "evaluate", evaluate)
    common = ("--train.local_batch_size", "2", "--train.max_epochs", "4", "--optim.lr", "0.0003")
    assert train(tmp_path / "whole", *common) == 0
    quality = RunFolder.open(tmp_path / "whole").read_epochs()["mae"]
    easy, hard = (repr(float(quality[:count].min())) for count in (1, 4))
    assert train(folder, *common, "--train.target", easy) == 0
    assert RunFolder.open(folder).read_summary().epochs_to_target == 1
    assert train(folder, "--resume", "--resume-or-start", "--train.target", hard) == 0
    summary = RunFolder.open(folder).read_summary()
    assert (summary.epochs_to_target, summary.epochs, summary.target) == (4, 4, 0.25)
    losses = [RunFolder.open(path).read_steps()["loss"].tolist() for path in (folder, tmp_path / "whole")]
    assert losses[0] == losses[1]
    capsys.readouterr()
    assert train(folder, "--resume", "--train.target", hard) == 2
    assert "has reached its target" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_without_a_target_can_be_extended(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--train.local_batch_size", "2", *STOCHASTIC)
    assert train(tmp_path / "whole", *common, "--train.max_epochs", "3") == 0
    folder = tmp_path / "run"
    assert train(folder, *common, "--train.max_epochs", "1") == 0
    capsys.readouterr()
    assert train(folder, "--resume") == 2
    said = capsys.readouterr().err
    assert said == (
        f"hpcbench: error: the run in {folder} has made its 1 epoch; raise --train.max_epochs to extend it\n"
    )
    assert train(folder, "--resume", "--train.max_epochs", "2") == 0
    assert train(folder, "--resume", "--resume-or-start", "--train.max_epochs", "3") == 0
    same_run(folder, tmp_path / "whole")
    assert RunFolder.open(folder).read_summary().cause == "epochs"
    assert train(folder, "--resume", "--resume-or-start", "--train.max_epochs", "3") == 0
    assert newest(folder).state["epoch"] == 3


@pytest.mark.slow
def test_a_run_that_did_not_reach_its_target_has_nothing_left_to_do(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused, and adds no attempt; a job script, which asks again, gets the exit code of the run."""
    folder = tmp_path / "run"
    assert train(folder, *NEVER, "--train.max_epochs", "2") == 3
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train(folder, "--resume") == 2
    assert capsys.readouterr().err == (
        f"hpcbench: error: the run in {folder} has made its 2 epochs and not reached its target; raise "
        "--train.max_epochs to extend it\n"
    )
    assert train(folder, "--resume", "--resume-or-start") == 3
    said = f"the run in {folder} has made its epochs and not reached its target; nothing is left to do\n"
    assert capsys.readouterr().out == said
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files
    assert train(folder, "--resume", "--resume-or-start", "--train.max_epochs", "3") == 3
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train(folder, "--resume", "--resume-or-start", "--train.target", "10") == 2
    assert capsys.readouterr().err == (
        f"hpcbench: error: the run in {folder} met train.target 10 after 1 epoch already, when it had another target, "
        "and went on; give a target that it has not met, or start a new run with --run-dir\n"
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files
