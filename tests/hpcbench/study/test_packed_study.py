"""A convergence study as jobs of a Slurm, by its commands: rounds of a search, jobs that die, stop or are cancelled.

What the scheduler does is the test's part: it says when a job runs, and calls what its script calls.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.batch.holds import Hold, read_holds, write_hold
from hpcbench.batch.packed_runs import packed_runs
from hpcbench.cli.main import main
from hpcbench.study import convergence, execute
from hpcbench.study.folder import StudyFolder
from tests.hpcbench.batch.waiting_slurm import Queue
from tests.hpcbench.study.conftest import FakeLauncher
from tests.hpcbench.study.test_runner import EndlessLauncher, interrupted, settings_of


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Nodes of four cores, so that two runs fit side by side."""
    return Queue(tmp_path, monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "study")


def words(folder: StudyFolder, data: Path, *more: str) -> list[str]:
    """Two batches of one optimizer with two seeds."""
    matrix = "--site cluster --preset smoke --batch-sizes 4,8 --optimizers sgd --seeds 2 --time 00:30:00"
    paths = ["--data.root", str(data), "--study-dir", str(folder.path)]
    return ["study", "convergence", "cosmoflow", *matrix.split(), *paths, *more]


def runs_of_jobs(folder: StudyFolder) -> dict[str, list[str]]:
    """The runs of each job by its number."""
    found = {path.name: packed_runs(path) for path in sorted(folder.jobs.iterdir())}
    return {name: list(packed.words) for name, packed in found.items() if packed is not None}


def work(
    queue: Queue, job: int, launcher: object, monkeypatch: pytest.MonkeyPatch, end: str = "COMPLETED", *options: str
) -> int:
    """Let a job run to its end; the exit code of what its script calls."""
    path = queue.set(job, "RUNNING")
    began = len(read_holds(path)) + 1
    write_hold(path, Hold.here(str(job), began, "slurm", "", 1, 0), began)
    monkeypatch.setattr(execute, "LocalLauncher", lambda lock: launcher)
    code = main(["study", "execute", str(path), *options])
    queue.set(job, end)
    return code


def status(folder: StudyFolder, capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    """The line that counts the runs, and what follows it, without the line on node-hours of jobs that have begun."""
    capsys.readouterr()
    assert main(["study", "status", str(folder.path)]) == code
    lines = capsys.readouterr().out.partition("runs: ")[2].strip().splitlines()
    hours = [line for line in lines if line.startswith("node-hours used: ")]
    assert len(hours) == any(read_holds(path) for path in folder.jobs.iterdir())
    return "\n".join(line for line in lines if line not in hours)


@pytest.mark.slow
def test_rounds_of_a_search_are_submitted_by_resume(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    search = words(folder, small_cosmos, "--lr-search=0.5,1", "--lr-search-seeds=1", "--lr-search-widen=0")
    assert main([*search, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "a cluster: 4 jobs of at most 2 runs (2 side by side on a node, 2 cores each), at most 2 node-hours" in shown
    assert not folder.path.exists()
    assert main(search) == 0
    assert "jobs/0001: job 1, 2 runs, 1 node, at most 0.5 node-hours" in capsys.readouterr().out
    assert status(folder, capsys) == "4 waiting, 4 left"
    assert main(search) == 0
    assert len(queue.folders()) == 2, "what waits is not submitted again"
    best = FakeLauncher(lambda settings: 4.0 if settings["optim.lr"] in ("0.0003125", "0.00125") else 5.0)
    assert [work(queue, job, best, monkeypatch) for job in (1, 2)] == [0, 0]
    assert status(folder, capsys) == "4 reached, 4 left"
    assert main(["study", "resume", str(folder.path)]) == 0
    assert runs_of_jobs(folder) == {
        "0001": ["b4-sgd-x0.5-search", "b4-sgd-x1-search"], "0002": ["b8-sgd-x0.5-search", "b8-sgd-x1-search"],
        "0003": ["b4-sgd-x0.5-seed1", "b8-sgd-x1-seed1"], "0004": ["b4-sgd-x0.5-seed2", "b8-sgd-x1-seed2"],
    }  # fmt: skip
    assert [work(queue, job, FakeLauncher(lambda settings: 4.0), monkeypatch) for job in (3, 4)] == [0, 0]
    reported: list[StudyFolder] = []
    monkeypatch.setattr(convergence, "report", reported.append)
    assert main(["study", "resume", str(folder.path)]) == 0
    assert "nothing is left to run" in capsys.readouterr().out
    assert len(queue.folders()) == 4
    assert "8 reached, 0 left" in status(folder, capsys)
    assert len(reported) == 1


def test_a_search_that_widens_and_halves_comes_in_rounds(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Batch 4 gets better up to twice the rule's rate, batch 8 is best at it."""
    search = words(folder, small_cosmos, "--lr-search", "0.5,1", "--runs-per-job", "8")
    assert main([*search, "--dry-run"]) == 0
    assert "an attempt (0.5 h each); more where searches widen" in " ".join(capsys.readouterr().out.split())

    def epochs(settings: dict[str, str]) -> float:
        return 4 + abs(math.log2(float(settings["optim.lr"]) / 0.00125))

    assert main(search) == 0
    for job in range(1, 5):
        assert work(queue, job, FakeLauncher(epochs), monkeypatch) == 0
        assert main(["study", "resume", str(folder.path)]) == 0
    assert runs_of_jobs(folder) == {
        "0001": ["b4-sgd-x0.5-search", "b4-sgd-x1-search", "b8-sgd-x0.5-search", "b8-sgd-x1-search"],
        "0002": ["b4-sgd-x2-search", "b8-sgd-x2-search"],
        "0003": ["b4-sgd-x4-search", "b8-sgd-x4-search"],
        "0004": ["b4-sgd-x1-search2", "b4-sgd-x2-search2", "b8-sgd-x0.5-search2", "b8-sgd-x1-search2"],
        "0005": ["b4-sgd-x2-seed1", "b8-sgd-x1-seed1", "b4-sgd-x2-seed2", "b8-sgd-x1-seed2"],
    }  # fmt: skip


@pytest.mark.slow
def test_with_wait_the_rounds_follow_by_themselves(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler starts each job as it is submitted: a search, one that has widened, its second seed, the seeds."""
    from hpcbench.study import job_runs

    best, submit = FakeLauncher(lambda settings: 4.0), job_runs.submit

    def submit_and_run(*given: object) -> object:
        handle = submit(*given)  # type: ignore[arg-type]
        work(queue, int(handle.job_id), best, monkeypatch)
        return handle

    monkeypatch.setattr(job_runs, "submit", submit_and_run)
    monkeypatch.setattr(job_runs.JobRuns, "pauses_s", (0.01, 0.01))
    assert main(words(folder, small_cosmos, "--lr-search", "0.5,1", "--wait", "--jobs", "1")) == 0
    assert len(best.started) == (2 + 1 + 2 + 2) * 2
    assert len(queue.folders()) == 7


def test_runs_of_a_job_that_died_are_put_into_another_one_and_no_other_run(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(words(folder, small_cosmos)) == 0
    path = queue.set(1, "NODE_FAIL")
    (path / "job-1.log").write_text("slurmstepd: error: *** JOB 1 CANCELLED DUE TO NODE FAILURE ***\n")
    queue.set(2, "RUNNING")
    queue.down.touch()
    assert main(["study", "resume", str(folder.path)]) == 0
    assert len(queue.folders()) == 2, "while nobody can be asked, nothing is submitted"
    told = status(folder, capsys)
    assert told.startswith("4 unknown, 0 left\njobs/0001: 2 runs unknown: Slurm cannot be asked: squeue: ")
    queue.down.unlink()
    assert "\njobs/0001: 2 runs not begun: slurmstepd: error: *** JOB 1 CANCELLED" in status(folder, capsys)
    assert main(["study", "resume", str(folder.path)]) == 0
    assert runs_of_jobs(folder)["0003"] == runs_of_jobs(folder)["0001"]
    assert len(queue.folders()) == 3
    assert work(queue, 3, FakeLauncher(lambda settings: 4.0), monkeypatch) == 0
    assert status(folder, capsys) == "2 reached, 2 waiting, 0 left"
    late = FakeLauncher(lambda settings: 4.0)
    assert work(queue, 1, late, monkeypatch) == 0
    assert late.started == [], "a job that was given up and comes late makes nothing"


def test_a_job_that_is_stopped_continues_and_then_makes_what_had_not_begun(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(words(folder, small_cosmos, "--runs-per-job", "4", "--cores-per-rank", "2")) == 0
    (job,) = (Path(path) for path in queue.folders())
    stopping = EndlessLauncher()
    assert work(queue, 1, stopping, monkeypatch, end="PENDING") == 143
    assert [process.code for process in stopping.processes] == [143, 143], "both were asked to stop, and waited for"
    assert main(["jobs", "--interrupted", str(job)]) == 1, "nothing was achieved in this attempt"
    first, second, *_ = packed_runs(job).words.items()  # type: ignore[union-attr]
    for name, given in (first, second):
        settings = settings_of([*given, "--run-dir", str(folder.run(name))])
        interrupted(folder, name, settings, checkpoint=name == first[0])
        attempt = {"started": 0, "ended": 1, "first_step": 0, "last_step": 1, "cause": "signal"}
        left = {"schema": 1, "attempts": [attempt], "ranks": []}
        (folder.run(name) / "attempts.json").write_text(json.dumps(left), encoding="utf-8")
    assert main(["jobs", "--interrupted", str(job)]) == 0
    assert main(["jobs", "--interrupted", "--cancelled", str(job)]) == 1
    assert "runs: " + status(folder, capsys) == "runs: 4 waiting, 0 left"
    again = FakeLauncher(lambda settings: 4.0 if "optim.lr" in settings else math.nan)
    work(queue, 1, again, monkeypatch)
    assert [each["resume"] for each in again.started] == ["True", "False", "False", "False"]
    assert main(["jobs", "--interrupted", str(job)]) == 1
    assert "1 failed" in status(folder, capsys)
    assert len(queue.folders()) == 1


def test_runs_that_fail_end_their_job_which_does_not_come_back(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert main(words(folder, small_cosmos, "--runs-per-job", "4", "--cores-per-rank", "4")) == 0
    (job,) = (Path(path) for path in queue.folders())
    launcher = FakeLauncher(lambda settings: math.nan)
    assert work(queue, 1, launcher, monkeypatch, end="FAILED") == 2
    assert "3 runs in a row failed, the last with: exit code 1: no memory; see " in capsys.readouterr().err
    assert len(launcher.started) == 3, "one at a time, as each asks for all cores"
    assert main(["jobs", "--interrupted", str(job)]) == 1
    told = status(folder, capsys)
    assert told.startswith("3 failed, 1 left\n")
    assert "b4-sgd-x1-seed1: failed: exit code 1: no memory" in told
    assert main(words(folder, small_cosmos)) == 0
    assert runs_of_jobs(folder)["0002"] == ["b8-sgd-x1-seed2"], "what has failed is not made again unasked"
    assert main(["study", "resume", str(folder.path)]) == 0
    found = runs_of_jobs(folder)
    assert sorted(found["0001"][:3]) == sorted(name for job in list(found)[2:] for name in found[job])


def test_cancelled_jobs_leave_their_runs_to_resume(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(folder, small_cosmos)) == 0
    capsys.readouterr()
    assert main(["study", "cancel", str(folder.path)]) == 0
    said = capsys.readouterr().out
    assert said == "jobs/0001: job 1 is being cancelled\njobs/0002: job 2 is being cancelled\n"
    assert queue.states() == ["CANCELLED", "CANCELLED"]
    assert status(folder, capsys).startswith("4 left\njobs/0001: 2 runs not begun: cancelled\n")
    assert main(["study", "cancel", str(folder.path)]) == 0
    assert re.search("no job of .* waits or runs", capsys.readouterr().out)
    queue.set(1, "RUNNING")  # it is still ending, and its runs are left to the next command
    assert main(["study", "resume", str(folder.path)]) == 0
    assert queue.states() == ["RUNNING", "CANCELLED", "PENDING"]
    queue.set(1, "CANCELLED")
    assert main(["study", "resume", str(folder.path)]) == 0
    assert queue.states() == ["CANCELLED", "CANCELLED", "PENDING", "PENDING"]


def test_jobs_that_run_have_used_node_hours_before_their_runs_begin(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(folder, small_cosmos)) == 0
    for job in (1, 2):
        hold = replace(Hold.here(str(job), 1, "slurm", "", 1, 0), began=time.time() - 36)
        write_hold(queue.set(job, "RUNNING"), hold, 1)
    capsys.readouterr()
    assert main(["study", "status", str(folder.path)]) == 0
    said = capsys.readouterr().out
    assert "runs: 4 waiting, 0 left" in said
    assert re.search(r"^node-hours used: 0\.0\d+, in 2 attempts of 2 jobs$", said, re.MULTILINE)


def test_a_job_whose_record_is_damaged_does_not_keep_the_others(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its runs are not known: nothing is submitted, but the others are shown, and cancelled."""
    assert main(words(folder, small_cosmos)) == 0
    record = folder.jobs / "0001" / "job.json"
    record.write_text("")
    capsys.readouterr()
    assert main(["study", "resume", str(folder.path)]) == 2
    assert capsys.readouterr().err.startswith(f"hpcbench: error: {record}: is damaged")
    assert len(queue.folders()) == 2
    told = status(folder, capsys, code=2)
    assert told.startswith("2 waiting, 2 left\n")
    assert f"{record}: is damaged" in told
    capsys.readouterr()
    assert main(["study", "cancel", str(folder.path)]) == 2
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{record}: is damaged")
    assert said[1:] == ["jobs/0002: job 2 is being cancelled"]
    assert queue.states() == ["PENDING", "CANCELLED"]


def test_no_more_jobs_are_queued_than_asked_for(queue: Queue, folder: StudyFolder, small_cosmos: Path) -> None:
    for _ in range(2):
        assert main(words(folder, small_cosmos, "--jobs", "1")) == 0
        assert queue.states() == ["PENDING"]
    queue.set(1, "FAILED")
    assert main(["study", "resume", str(folder.path), "--jobs", "1"]) == 0
    assert queue.states() == ["FAILED", "PENDING"]


def test_a_job_is_executed_once_at_a_time(queue: Queue, folder: StudyFolder, small_cosmos: Path) -> None:
    assert main(words(folder, small_cosmos)) == 0
    job = Path(queue.folders()[0])
    lock = os.open(job / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        execute.take(lock, job)
        assert main(["study", "execute", str(job)]) == 2
    finally:
        os.close(lock)
    assert not (job / "crash.json").exists()
    assert main(["study", "execute", str(folder.path)]) == 2


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--site cluster --cores-per-rank 5", "a run of 1 process needs 5 cores, more than the 4 of a node of cluster"),
        ("--site cluster --parallel.spatial 2x4", "a run of 8 processes needs 8 cores, more than the 4 of a node of"),
        ("--site gpus --parallel.spatial 2x2", "a run of 4 processes needs 4 GPUs, more than the 2 of a node of gpus"),
        ("--site gpus --gpus-per-rank 3", "a run of 1 process needs 3 GPUs, more than the 2 of a node of gpus"),
        ("--account m1234", "--account is for jobs; name a --site, or leave it out"),
        ("--runs-per-job 2", "--runs-per-job is for jobs; name a --site, or leave it out"),
        ("--site cluster --time 00:01:00", "must be longer than --warn-s"),
        ("--site clutser", "unknown site 'clutser'; did you mean 'cluster'?"),
    ],
)  # fmt: skip
def test_what_no_node_can_make_is_one_line(
    options: str, line: str, queue: Queue, folder: StudyFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    site = "title: GPUs\nscheduler: slurm\nlauncher: srun\nnode: {cores: 8, gpus: 2}\n"
    Path(os.environ["HPCBENCH_SITES"], "gpus.yaml").write_text(site)
    matrix = ["--batch-sizes", "4", "--optimizers", "sgd", "--study-dir", str(folder.path)]
    assert main(["study", "convergence", "cosmoflow", *matrix, *options.split()]) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not folder.path.exists()


def test_a_refused_job_leaves_no_study(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "sbatch").write_text("#!/bin/bash\necho 'sbatch: error: invalid account' >&2\nexit 1\n")
    assert main(words(folder, small_cosmos)) == 2
    assert "sbatch refused the job: sbatch: error: invalid account" in capsys.readouterr().err
    assert not folder.path.exists()


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_is_passed_on_as_it_came(
    number: signal.Signals, queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(words(folder, small_cosmos)) == 0
    launcher = EndlessLauncher(number=number)
    assert work(queue, 1, launcher, monkeypatch) == 128 + number
    assert [process.code for process in launcher.processes] == [128 + number] * 2
