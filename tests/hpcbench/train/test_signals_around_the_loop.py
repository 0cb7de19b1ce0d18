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


def test_one_while_plots_are_drawn_ends_a_run_that_can_be_completed(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hpcbench.results.report.draw_run", lambda *words: send())
        assert train(tmp_path / "run", "--train.max_epochs", "1") == 143
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert (summary.status, summary.cause, summary.complete) == ("success", "epochs", False)
    assert not (tmp_path / "run/report.html").exists()
    assert train(tmp_path / "run", "--resume") == 0
    assert RunFolder.open(tmp_path / "run").read_summary().complete
    assert (tmp_path / "run/report.html").exists()


def test_one_while_the_page_is_written_leaves_it_to_another_command(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hpcbench.results.report.write_run_page", lambda *words: send())
        assert train(tmp_path / "run", "--train.max_epochs", "1") == 143
    assert RunFolder.open(tmp_path / "run").read_summary().complete
    assert main(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run/report.html").exists()


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
