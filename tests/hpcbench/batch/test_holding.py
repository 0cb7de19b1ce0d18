"""Which job and attempt may work in a run folder, by what it holds and by what a scheduler says."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch import holding
from hpcbench.batch.holding import HeldError, check_free, move_aside, take_folder
from hpcbench.batch.holds import Hold, announce_continuation, newest_hold, read_holds, stem, write_continuation
from hpcbench.batch.scheduler import JobState, JobStatus
from hpcbench.cli.main import main
from staging.errors import DataError, InputError

HERE = socket.gethostname()
FIRST = Hold("17", 1, "pbs", "hpcbench:a/run:0", 2, 0, "node1", 1.0)


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, JobState]]:
    """Ids that a scheduler was asked for, and what it is to answer, which is the last."""
    asked: list[tuple[str, JobState]] = [("", "running")]

    def job_status(job: object) -> JobStatus:
        asked.insert(0, (job.job_id, "unknown"))  # type: ignore[attr-defined]
        return JobStatus(asked[-1][1], "why")

    monkeypatch.setattr(holding, "job_status", job_status)
    return asked


def hold(folder: Path, first: Hold = FIRST) -> Path:
    """Let a first job take the folder."""
    folder.mkdir(exist_ok=True)
    return take_folder(folder, first)


@pytest.mark.parametrize(("state", "free"), [("running", False), ("waiting", False), ("unknown", False),
                                             ("failed", True), ("lost", True), ("preempted", True)])  # fmt: skip
def test_the_scheduler_is_asked_whether_the_job_that_holds_it_has_ended(
    state: JobState, free: bool, says: list[tuple[str, JobState]], tmp_path: Path
) -> None:
    hold(tmp_path)
    says[-1] = ("", state)
    other = replace(FIRST, job_id="18")
    if free:
        assert take_folder(tmp_path, other) == stem(tmp_path, 2)
    else:
        with pytest.raises(HeldError, match=rf"is held by job 17, attempt 1: {state} \(why\)"):
            take_folder(tmp_path, other)
        assert len(read_holds(tmp_path)) == 1
    assert says[0][0] == "17"


@pytest.mark.parametrize(
    ("before", "after", "free"),
    [
        (FIRST, replace(FIRST, host="node2"), True),
        (FIRST, replace(FIRST, process=99999999), True),
        (replace(FIRST, process=os.getpid(), host=HERE, began=4e9), replace(FIRST, host=HERE), False),
        (replace(FIRST, scheduler="slurm"), replace(FIRST, scheduler="slurm", attempt=2, host="node9"), True),
        (replace(FIRST, scheduler="slurm"), replace(FIRST, scheduler="slurm", host="node9"), False),
    ],
)  # fmt: skip
def test_the_same_job_takes_over_once_its_scheduler_has_started_it_again(
    before: Hold, after: Hold, free: bool, says: list[tuple[str, JobState]], tmp_path: Path
) -> None:
    """Slurm counts how often; elsewhere another host, or a process that is gone, tells a restart."""
    hold(tmp_path, before)
    if free:
        assert take_folder(tmp_path, after).name == "2"
        assert len(says) == 1, "nobody was asked"
    else:
        with pytest.raises(HeldError, match="is held by job 17"):
            take_folder(tmp_path, after)


def test_a_job_that_hands_over_waits_for_the_one_that_continues_it(
    says: list[tuple[str, JobState]], tmp_path: Path
) -> None:
    hold(tmp_path)
    first = read_holds(tmp_path)[0]
    announce_continuation(tmp_path, first)
    stem(tmp_path, 1).with_suffix(".end").write_text("5 138\n")
    says[-1] = ("", "waiting")
    write_continuation(tmp_path, first, "18.server")
    for other in (replace(FIRST, job_id="19"), replace(FIRST, host="node2"), replace(FIRST, mark="x", attempt=2)):
        with pytest.raises(HeldError, match=r"attempt 1, which hands over to job 18.server: waiting"):
            take_folder(tmp_path, other)
    with pytest.raises(HeldError, match="hands over"):
        check_free(tmp_path)
    with pytest.raises(HeldError, match="hands over"):
        move_aside(tmp_path, tmp_path.with_name("aside"))
    assert take_folder(tmp_path, replace(FIRST, job_id="18", attempt=2)).name == "2"


def test_a_script_that_has_ended_leaves_its_folder_free(says: list[tuple[str, JobState]], tmp_path: Path) -> None:
    run = tmp_path / "run"
    hold(run)
    stem(run, 1).with_suffix(".end").touch()
    check_free(run)
    assert take_folder(run, replace(FIRST, job_id="18", mark="y")).name == "2"
    with pytest.raises(HeldError, match="is held by job 18, attempt 1, since"):
        check_free(run, stem(run, 1))
    check_free(run, stem(run, 2))
    says[-1] = ("", "failed")
    move_aside(run, tmp_path / "aside")
    assert not run.exists()
    with pytest.raises(HeldError, match="does not exist, or not any more"):
        take_folder(run, FIRST)
    assert take_folder(tmp_path / "aside", FIRST).name == "4", "it can be continued by hand"


def test_a_job_of_an_earlier_submission_does_not_touch_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"mark": "hpcbench:a/run:1"}))
    with pytest.raises(HeldError, match=r"was submitted again since \(as hpcbench:a/run:1\)"):
        take_folder(tmp_path, FIRST)
    assert newest_hold(tmp_path) is None


def test_one_of_many_processes_takes_a_folder(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from hpcbench.batch.holds import Hold, write_hold
sys.stdin.read()
try:
    print(write_hold(Path({str(tmp_path)!r}), Hold.here(sys.argv[1], 1, "pbs", "", 1, 0), 1))
except FileExistsError:
    print("held")
"""
    words = [sys.executable, "-c", code]
    started = [
        subprocess.Popen([*words, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for n in range(4)
    ]
    said = [each.communicate("go")[0].strip() for each in started]
    assert sorted(said) == sorted([str(stem(tmp_path, 1)), "held", "held", "held"])
    assert sorted(path.name for path in (tmp_path / "holds").iterdir()) == ["1.json"]


def test_a_damaged_hold_is_told_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hold(tmp_path)
    (tmp_path / "holds" / "1.json").write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        newest_hold(tmp_path)
    assert main(["jobs", "--take", "1", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_script_learns_that_it_is_not_its_folder(
    says: list[tuple[str, JobState]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["jobs", "--scheduler", "pbs", "--take"]
    assert main([*words, "17", str(tmp_path)]) == 0
    assert capsys.readouterr() == (f"{tmp_path}/holds/1\n", "")
    assert main([*words, "18", str(tmp_path)]) == 4
    said = (
        f"hpcbench: error: run folder {tmp_path} is held by job 17, attempt 1: running (why); job 18, attempt 1, ends"
    )
    assert capsys.readouterr() == ("", f"{said} here\n")
    assert main(["jobs", "--scheduler", "psb", "--take", "1", str(tmp_path)]) == 2
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(InputError, match="is damaged"):
        take_folder(tmp_path, FIRST)
