"""Why Slurm ends a job, as a controller says it, or says nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hpcbench.batch.continuation import NO_PROGRESS
from hpcbench.batch.preemption import was_preempted, was_requeued
from hpcbench.cli.main import main
from hpcbench.exits import Cause
from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary

ANSWER = (
    "JobId=7 JobName=train UserId=me(1000) Priority=1 JobState={state} Reason=None Requeue=1 Restarts=0 ExitCode=0:0 "
    "RunTime=00:01:00 TimeLimit=01:00:00 PreemptEligibleTime=2026-03-14T09:26:53 PreemptTime={time} Partition=low"
)
"""In one line, shortened."""


def environ_with(folder: Path, script: str, **more: str) -> dict[str, str]:
    """An environment of a job whose ``scontrol`` is a shell script."""
    command = folder / "scontrol"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SLURM_JOB_ID": "7", **more}


@pytest.mark.parametrize(
    ("state", "when", "expected"),
    [
        ("RUNNING", "None", False),
        ("RUNNING", "2026-03-14T10:00:00", True),
        ("PREEMPTED", "None", True),
        ("CANCELLED", "None", False),
    ],
)
def test_the_controller_says_so(
    state: str, when: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ANSWER.format(state=state, time=when)
    environ = environ_with(tmp_path, f'echo "$@" > {tmp_path}/asked\necho "{answer}"')
    monkeypatch.setenv("PATH", environ["PATH"])
    assert was_preempted(environ) is expected
    assert (tmp_path / "asked").read_text() == "show job -o 7\n"


def test_without_an_answer_a_signal_is_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ANSWER.format(state="PREEMPTED", time="None")
    environ = environ_with(tmp_path, f'echo "{answer}"; echo "slurm_load_jobs error: unable to contact" >&2; exit 1')
    monkeypatch.setenv("PATH", environ["PATH"])
    assert not was_preempted(environ)
    assert not was_preempted({"PATH": environ["PATH"]})
    environ_with(tmp_path, "exec sleep 60")
    started = time.monotonic()
    assert not was_preempted(environ, 0.2)
    assert time.monotonic() - started < 30
    monkeypatch.setenv("PATH", "/nowhere")
    assert not was_preempted({"SLURM_JOB_ID": "7", "PATH": "/nowhere"})


@pytest.mark.parametrize(
    ("restarts", "said", "expected"), [(None, 0, False), (None, 1, True), ("1", 1, False), ("1", 2, True)]
)
def test_a_job_that_slurm_has_queued_again_is_not_queued_twice(
    restarts: str | None, said: int, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Preempted without a grace time, or with a node that failed: the script gets SIGTERM as if it were cancelled."""
    answer = ANSWER.format(state="COMPLETING", time="None").replace("Restarts=0", f"Restarts={said}")
    more = {} if restarts is None else {"SLURM_RESTART_COUNT": restarts}
    environ = environ_with(tmp_path, f'echo "{answer}"', **more)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert was_requeued(environ) is expected
    (tmp_path / "run").mkdir()
    assert main(["jobs", "--interrupted", "--cancelled", str(tmp_path / "run")]) == 1
    printed = capsys.readouterr().out
    assert ("Slurm has queued the job again" in printed) is expected
    assert ("was cancelled" in printed) is not expected


@pytest.mark.parametrize(
    ("state", "reason", "cause", "code", "words"),
    [
        ("COMPLETING", "TimeLimit", "signal", 0, "reached its time limit and was stopped by SIGUSR1; continued"),
        ("TIMEOUT", "None", "signal", 0, "reached its time limit and was stopped by SIGUSR1; continued"),
        ("COMPLETING", "TimeLimit", "diverged", 1, "reached its time limit and ended: diverged; not continued"),
        ("COMPLETING", "TimeLimit", None, 1, f"reached its time limit and {NO_PROGRESS}; not continued"),
        ("COMPLETING", "None", "signal", 1, "was cancelled; not continued"),
        ("COMPLETING", "PartitionTimeLimit", "signal", 1, "was cancelled; not continued"),
    ],
)
def test_a_job_that_reached_its_time_limit_was_not_cancelled(
    state: str, reason: str, cause: Cause | None, code: int, words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A step that takes longer than the warning time: the script gets SIGTERM as if it were cancelled."""
    answer = ANSWER.format(state=state, time="None").replace("Reason=None", f"Reason={reason}")
    for name, value in environ_with(tmp_path, f'echo "{answer}"').items():
        monkeypatch.setenv(name, value)
    run = tmp_path / "run"
    run.mkdir()
    Attempts([Attempt(0.0, 10.0, 0, 5, cause)]).write(run)
    if cause is not None:
        signal = "SIGUSR1" if cause == "signal" else None
        RunFolder(run).write_summary(
            Summary("cosmoflow", "t", "smoke", status="aborted", cause=cause, signal=signal)
        )  # fmt: skip
    assert main(["jobs", "--interrupted", "--cancelled", str(run)]) == code
    assert capsys.readouterr().out == f"hpcbench: the run {words}\n"


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        ("JobState=COMPLETING Reason=TimeLimit", 0, "reached its time limit and was stopped by SIGTERM; continued"),
        ("JobState=RUNNING Reason=None PreemptTime=2026-03-14T10:00:00", 0, "was stopped by SIGTERM; continued"),
        ("JobState=COMPLETING Reason=None PreemptTime=None", 1, "was cancelled; not continued"),
        ("", 1, "was cancelled; not continued"),
    ],
)
def test_a_command_in_an_image_knows_from_its_script_why_the_job_ends(
    answer: str, code: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("HPCBENCH_JOB_RECORD", answer)
    Attempts([Attempt(0.0, 10.0, 0, 5, "signal")]).write(tmp_path)
    ended = Summary("cosmoflow", "t", "smoke", status="aborted", cause="signal", signal="SIGTERM")
    RunFolder(tmp_path).write_summary(ended)
    assert main(["jobs", "--interrupted", "--cancelled", str(tmp_path)]) == code
    assert capsys.readouterr().out == f"hpcbench: the run {words}\n"


@pytest.mark.parametrize(("when", "again"), [("2026-03-14T10:00:00", True), ("None", False)])
def test_a_run_that_is_preempted_before_it_can_say_so_is_continued(
    when: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal with which a grace time begins may come while Python still imports."""
    answer = ANSWER.format(state="RUNNING", time=when)
    for name, value in environ_with(tmp_path, f'echo "{answer}"').items():
        monkeypatch.setenv(name, value)
    (tmp_path / "run").mkdir()
    assert main(["jobs", "--interrupted", str(tmp_path / "run")]) == (0 if again else 1)
