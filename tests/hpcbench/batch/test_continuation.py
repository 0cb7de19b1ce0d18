"""Which runs another attempt of their job continues, by what they left in their folders."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from hpcbench.batch.continuation import interruption
from hpcbench.batch.holds import Hold, stem, write_hold
from hpcbench.batch.packed_runs import PackedRuns
from hpcbench.cli.main import main
from hpcbench.exits import Cause
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


@pytest.mark.parametrize(("signal", "end"), [
    ("SIGUSR1", "; not continued by itself: no attempt is left (--attempts); submit the job's script again\n"),
    ("SIGINT", "; not continued\n"),
])  # fmt: skip
def test_the_last_attempt_says_who_may_continue_the_run(
    signal: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hold(tmp_path, Hold("7", 10, "slurm"), 1)
    leave(tmp_path, "signal", signal)
    words = ["jobs", "--interrupted", "--last-attempt", "--hold", str(stem(tmp_path, 1)), str(tmp_path)]
    assert main(words) == 1
    assert capsys.readouterr().out.endswith(end)
    assert not list(tmp_path.rglob("*.next")), "nobody waits for an attempt that does not come"


@pytest.mark.parametrize(("cause", "signal"), [("signal", "SIGTERM"), ("preempted", None), (None, None)])
def test_a_job_that_was_cancelled_is_not_continued_but_one_that_was_preempted_is(
    cause: str | None, signal: str | None, tmp_path: Path
) -> None:
    leave(tmp_path, cause, signal)
    again = cause == "preempted"
    assert interruption(tmp_path, cancelled=True)[0] is again
    assert main(["jobs", "--interrupted", "--cancelled", str(tmp_path)]) == (0 if again else 1)


def test_an_attempt_that_ended_before_it_trained_is_not_judged_by_the_one_before(tmp_path: Path) -> None:
    """Such as one that did not get what it had asked for."""
    leave(tmp_path, "signal", "SIGTERM")
    began = write_hold(tmp_path, Hold.here("17", 1, "slurm", "", 1, 0), 1).with_suffix(".json")
    os.utime(began, (1e9, 1e9))
    assert interruption(tmp_path)[0]
    os.utime(began, (4e9, 4e9))
    assert not interruption(tmp_path)[0]


@pytest.mark.parametrize("status", ["success", "target_not_reached"])
def test_a_run_that_has_ended_is_not_continued_though_its_script_starts_again(
    status: Literal["success", "target_not_reached"], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its training says so at once, and writes no attempt of its own."""
    cause: Cause = "target" if status == "success" else "epochs"
    Attempts([Attempt(0.0, 10.0, 0, 5, cause)]).write(tmp_path)
    summary = Summary("cosmoflow", "t", "smoke", status=status, cause=cause)
    RunFolder(tmp_path).write_summary(summary)
    began = write_hold(tmp_path, Hold.here("17", 2, "local", "", 1, 0), 1).with_suffix(".json")
    os.utime(began, (4e9, 4e9))
    write_checkpoint(tmp_path, began)
    assert interruption(tmp_path) == (False, "has ended")
    assert main(["jobs", "--interrupted", "--hold", str(began.with_suffix("")), str(tmp_path)]) == 1
    assert capsys.readouterr().out == "hpcbench: the run has ended; not continued\n"
    RunFolder(tmp_path).write_summary(replace(summary, complete=False))
    assert interruption(tmp_path)[0], "it was killed on its page"


@pytest.mark.parametrize("cause", ["target", "epochs", "steps"])
def test_a_run_that_was_killed_between_its_end_and_its_page_is_continued(cause: Cause, tmp_path: Path) -> None:
    """As at the time limit, while the baselines are computed: the cause is recorded before."""
    began = write_hold(tmp_path, Hold.here("17", 1, "slurm", "", 1, 0), 1).with_suffix(".json")
    write_checkpoint(tmp_path, began)
    Attempts([Attempt(0.0, 10.0, 0, 5, cause)]).write(tmp_path)
    summary = Summary("cosmoflow", "t", "smoke", status="success", cause=cause)
    RunFolder(tmp_path).write_summary(replace(summary, complete=False))
    assert interruption(tmp_path) == (True, "was killed after a checkpoint of this attempt")
    assert interruption(tmp_path, cancelled=True) == (False, "was cancelled")
    RunFolder(tmp_path).write_summary(summary)
    assert interruption(tmp_path) == (False, "has ended")


def test_a_run_that_was_asked_for_more_than_it_had_and_was_killed_is_continued(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_summary(Summary("cosmoflow", "t", "smoke", status="success", cause="epochs"))
    Attempts([Attempt(0.0, 10.0, 0, 5, "epochs"), Attempt(20.0, 30.0, 5, 9, None)]).write(tmp_path)
    began = write_hold(tmp_path, Hold.here("17", 2, "slurm", "", 1, 0), 1).with_suffix(".json")
    write_checkpoint(tmp_path, began)
    assert interruption(tmp_path)[0]


def write_checkpoint(path: Path, like: Path) -> None:
    """A whole checkpoint, as new as the file ``like``."""
    (path / "checkpoints").mkdir()
    for name in ("epoch-0001-step-00000005.pt", "epoch-0001-step-00000005.json"):
        file = path / "checkpoints" / name
        file.write_text("{}")
        os.utime(file, (like.stat().st_mtime, like.stat().st_mtime))


def test_a_run_that_was_killed_continues_if_it_came_further(tmp_path: Path) -> None:
    assert interruption(tmp_path) == (
        False, "was killed before this attempt wrote a checkpoint; give it more time (--time), or see its log",
    )  # fmt: skip
    leave(tmp_path, None)
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    write_hold(tmp_path, Hold.here("17", 1, "slurm", "", 1, 0), 1)
    for name in ("epoch-0001-step-00000005.pt", "epoch-0001-step-00000005.json"):
        (checkpoints / name).touch()
        os.utime(checkpoints / name, (1, 1))
    assert not interruption(tmp_path)[0], "the checkpoint is of an earlier attempt"
    os.utime(checkpoints / "epoch-0001-step-00000005.json")
    assert interruption(tmp_path)[0]


def test_one_attempt_that_was_killed_at_its_start_does_not_end_a_run_that_came_further_before(tmp_path: Path) -> None:
    """A second one in a row does."""
    leave(tmp_path, None)
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    for name in ("epoch-0001-step-00000005.pt", "epoch-0001-step-00000005.json"):
        (checkpoints / name).touch()
        os.utime(checkpoints / name, (1500, 1500))
    found = []
    for attempt in (1, 2, 3):
        began = write_hold(tmp_path, Hold.here("17", attempt, "slurm", "", 1, 0), attempt).with_suffix(".json")
        os.utime(began, (1000 * attempt, 1000 * attempt))
        found.append(interruption(tmp_path))
    assert [again for again, _ in found] == [True, True, False], found
    assert found[1][1] == "was killed before this attempt wrote a checkpoint, but the one before wrote one"


def test_several_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--interrupted", str(tmp_path), str(tmp_path)]) == 2
    assert "--interrupted takes one run folder, not 2" in capsys.readouterr().err


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of a job that packs the runs ``a``, ``b`` and ``c``, whose attempt has begun."""
    folder = tmp_path / "jobs" / "0001"
    folder.mkdir(parents=True)
    packed = PackedRuns(dict.fromkeys("abc", ("cosmoflow",)), side_by_side=2)
    (folder / "job.json").write_text(json.dumps({"packed_runs": packed.as_dict()}))
    write_hold(folder, Hold.here("17", 1, "slurm", "", 1, 0), 1)
    return folder


@pytest.mark.parametrize(
    ("ends", "again", "why"),
    [
        ({}, False, "was killed before this attempt wrote a checkpoint"),
        ({"a": "target"}, True, "had no time for 2 of 3 runs"),
        ({"a": "target", "b": "diverged", "c": "epochs"}, False, "has ended"),
        ({"a": "signal"}, True, "a was stopped by SIGUSR1"),
        ({"a": "target", "b": "preempted", "c": "crash"}, True, "b was preempted"),
        ({"a": "target", "b": "crash", "c": "hang"}, True, "c hung"),
        ({"a": "target", "b": "crash", "c": "rank_lost"}, True, "c lost a rank"),
        ({"a": "target", "b": "crash", "c": "error"}, False, "has ended"),
        ({"a": "person", "b": "signal"}, False, "a was stopped by SIGINT"),
        ({"a": "killed", "b": "target"}, True, "had no time for 2 of 3 runs"),
        ({"a": "killed", "b": "killed", "c": "killed"}, False, "was killed before this attempt wrote a checkpoint"),
    ],
)
def test_a_job_of_packed_runs_continues_if_one_of_them_does(
    ends: dict[str, str], again: bool, why: str, job: Path
) -> None:
    for name, end in ends.items():
        folder = job.parents[1] / "runs" / name
        folder.mkdir(parents=True)
        if end == "crash":
            (folder / "crash.json").write_text("{}")
        else:
            cause = {"person": "signal", "killed": None}.get(end, end)
            leave(folder, cause, {"person": "SIGINT", "signal": "SIGUSR1"}.get(end))
    found = interruption(job)
    assert (found[0], why in found[1]) == (again, True), found
    preempted = "preempted" in ends.values()
    assert interruption(job, cancelled=True)[0] is preempted
    (job / "crash.json").write_text("{}")
    assert not interruption(job)[0], "what the job's own process could not make is not tried again"


def test_runs_that_ended_in_an_earlier_attempt_are_no_progress(job: Path) -> None:
    folder = job.parents[1] / "runs" / "a"
    folder.mkdir(parents=True)
    leave(folder, "target")
    os.utime(folder / "summary.json", (1, 1))
    assert not interruption(job)[0]
