"""Which runs another attempt of their job continues, by what they left in their folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcbench.batch.continuation import interruption
from hpcbench.cli.main import main
from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary


def leave(path: Path, cause: str | None, signal: str | None = None) -> None:
    """What an attempt leaves that ended so."""
    Attempts([Attempt(0.0, 10.0, 0, 5, cause)]).write(path)
    if cause is not None:
        RunFolder(path).write_summary(Summary("cosmoflow", "t", "smoke", status="aborted", cause=cause, signal=signal))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cause", "signal", "again"),
    [
        ("signal", "SIGUSR1", True), ("signal", "SIGTERM", True), ("signal", "SIGINT", False),
        ("preempted", None, True), ("rank_lost", None, True), ("hang", None, True),
        ("diverged", None, False), ("bad_data", None, False), ("full_disk", None, False),
        ("error", None, False), ("epochs", None, False), ("target", None, False),
    ],
)  # fmt: skip
def test_the_cause_decides(
    cause: str, signal: str | None, again: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path, cause, signal)
    assert interruption(tmp_path)[0] is again
    assert main(["jobs", "--interrupted", str(tmp_path)]) == (0 if again else 1)
    words = capsys.readouterr().out
    assert words.startswith("hpcbench: the run ")
    assert words.endswith("; continued\n" if again else "; not continued\n")


@pytest.mark.parametrize(("cause", "signal"), [("signal", "SIGTERM"), ("preempted", None), (None, None)])
def test_a_job_that_was_cancelled_is_not_continued_but_one_that_was_preempted_is(
    cause: str | None, signal: str | None, tmp_path: Path
) -> None:
    leave(tmp_path, cause, signal)
    again = cause == "preempted"
    assert interruption(tmp_path, cancelled=True)[0] is again
    assert main(["jobs", "--interrupted", "--cancelled", str(tmp_path)]) == (0 if again else 1)


def test_a_run_that_was_killed_continues_if_it_came_further(tmp_path: Path) -> None:
    assert interruption(tmp_path) == (
        False, "was killed before this attempt wrote a checkpoint; give it more time (--time), or see its log",
    )  # fmt: skip
    leave(tmp_path, None)
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    (tmp_path / "job-id").write_text("17\n")
    for name in ("epoch-0001-step-00000005.pt", "epoch-0001-step-00000005.json"):
        (checkpoints / name).touch()
        os.utime(checkpoints / name, (1, 1))
    assert not interruption(tmp_path)[0], "the checkpoint is of an earlier attempt"
    os.utime(checkpoints / "epoch-0001-step-00000005.json")
    assert interruption(tmp_path)[0]


def test_several_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--interrupted", str(tmp_path), str(tmp_path)]) == 2
    assert "--interrupted takes one run folder, not 2" in capsys.readouterr().err
