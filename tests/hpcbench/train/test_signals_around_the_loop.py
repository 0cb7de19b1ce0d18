"""Signals that meet a run outside of its loop: before it, after it, and while samples arrive beside it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from staging.ledger.journal import Journal
from staging.ledger.jsonl import read_lines
from staging.source.sources import FileReader

Train = Callable[..., int]


def send() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_one_of_which_a_compiler_makes_an_error_of_its_own(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_and_be_asked_to_end(*words: object) -> None:
        try:
            send()
        except Exception:
            raise RuntimeError("the backend failed") from None

    monkeypatch.setattr("hpcbench.train.run.is_due", lambda *words: True)
    monkeypatch.setattr("hpcbench.train.run.warm_up", compile_and_be_asked_to_end)
    assert train(tmp_path / "run", "--train.max_epochs", "1") == 143
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert (summary.status, summary.cause, summary.signal) == ("aborted", "signal", "SIGTERM")
    assert summary.reason == "signal SIGTERM"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "complete", "again"), [("draw_run", False, "train --resume"), ("write_run_page", True, "report")]
)
def test_one_while_the_page_is_made_leaves_a_run_that_another_command_completes(
    where: str, complete: bool, again: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(f"hpcbench.results.report.{where}", lambda *words: send())
        assert train(run, "--train.max_epochs", "1") == 143
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.cause, summary.complete) == ("success", "epochs", complete)
    assert not (run / "report.html").exists()
    assert (train(run, "--resume") if again == "train --resume" else main(["report", str(run)])) == 0
    assert RunFolder.open(run).read_summary().complete
    assert (run / "report.html").exists()


def test_one_while_samples_arrive_leaves_a_staging_that_says_how_it_ended(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = FileReader.read_into, list[int]()

    def read_late(reader: FileReader, *words: Any) -> None:
        time.sleep(0.05)
        reads.append(1)
        if len(reads) == 8:
            send()
        read(reader, *words)

    monkeypatch.setattr(FileReader, "read_into", read_late)
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap", "--staging.threads", "1")
    assert train(tmp_path / "run", *staged, "--train.local_batch_size", "1", "--train.max_epochs", "1") == 143
    lines = [line for line in read_lines(Journal(tmp_path / "local").path) if line.get("event") == "end"]
    assert (lines[0]["outcome"], lines[0]["reason"]) == ("aborted", "the training that it was for has ended")
