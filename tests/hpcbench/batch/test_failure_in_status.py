"""The reason of a failure is the same in ``hpcbench jobs`` and in the status of a study."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from hpcbench.batch import submission
from hpcbench.batch.holds import Hold, write_hold
from hpcbench.batch.job_record import read_job
from hpcbench.batch.packed_runs import PackedRuns
from hpcbench.batch.submission import UnansweredError, job_status
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from hpcbench.study.run_status import run_statuses
from staging.errors import InputError
from tests.hpcbench.batch.conftest import a_job, a_site

LOGS = {
    "ModuleNotFoundError: No module named 'torch'": ["Traceback (most recent call last):", "  File x, line 1",
        "ModuleNotFoundError: No module named 'torch'", "srun: error: n2: task 1: Exited with exit code 1"],
    "/data/x: no such folder": ["hpcbench: error: /data/x: no such folder", "srun: error: n2: task 1: Terminated"],
    "srun: error: n2: task 1: Out Of Memory": ["step 3", "srun: error: n2: task 1: Out Of Memory"],
}  # fmt: skip


@pytest.mark.parametrize("reason", LOGS)
@pytest.mark.parametrize("forgotten", [False, True])
def test_jobs_and_study_status_tell_the_same_of_a_failure(
    reason: str, forgotten: bool, programs: Any, tmp_path: Path
) -> None:
    programs("sbatch", "17\n")
    site, run = a_site(), tmp_path / "run"
    job = submission.submit(a_job(site, run), site)
    programs("squeue", "" if forgotten else "17|FAILED|NonZeroExitCode\n")
    (run / "job-17.log").write_text("\n".join(["hpcbench: job 17, attempt 1, now", *LOGS[reason]]) + "\n")
    assert job_status(job).reason == reason
    assert run_statuses({run: job})[run].reason == reason


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_later_attempt_that_was_killed_is_not_judged_by_the_summary_of_an_earlier_one(
    forgotten: bool, programs: Any, tmp_path: Path
) -> None:
    programs("sbatch", "17\n")
    site, run = a_site(), tmp_path / "run"
    job = submission.submit(a_job(site, run), site)
    programs("squeue", "" if forgotten else "17|FAILED|OutOfMemory\n")
    begin(run, 1)
    RunFolder(run).write_summary(a_summary("aborted"))
    assert job_status(job).reason == "stopped by SIGUSR1"
    assert run_statuses({run: job})[run].status == "interrupted"
    begin(run, 2)
    word = "the scheduler no longer knows it, and the run left no summary" if forgotten else "OutOfMemory"
    assert job_status(job).reason == word, "the scheduler is the only one who says why"
    assert run_statuses({run: job})[run].reason == word
    said = "ModuleNotFoundError: No module named 'torch'"
    (run / "job-17.log").write_text(f"hpcbench: job 17, attempt 2, now\n{said}\n")
    assert job_status(job).reason == said
    found = run_statuses({run: job})[run]
    assert (found.status, found.reason) == ("failed", said)


def test_the_summary_of_a_run_that_came_to_its_end_counts_whatever_a_later_attempt_did(
    programs: Any, tmp_path: Path
) -> None:
    programs("sbatch", "17\n")
    site, run = a_site(), tmp_path / "run"
    job = submission.submit(a_job(site, run), site)
    programs("squeue", "17|FAILED|NonZeroExitCode\n")
    begin(run, 1)
    RunFolder(run).write_summary(a_summary("target_not_reached"))
    begin(run, 2)
    assert job_status(job).reason == "target missed"
    assert run_statuses({run: job})[run].status == "missed"


@pytest.mark.parametrize(
    ("end", "state", "reason"),
    [
        ("1795937625 0\n", "done", ""), ("1795937625 1\n", "failed", "hpcbench: r1: failed (no room)"),
        (None, "lost", "hpcbench: r1: failed (no room)"),
    ],
)  # fmt: skip
def test_a_forgotten_job_of_packed_runs_is_known_by_the_end_of_its_script(
    end: str | None, state: str, reason: str, programs: Any, tmp_path: Path
) -> None:
    """It has no summary of its own. A PBS without history forgets each job at its end."""
    programs("qsub", "17.server\n")
    site, folder = a_site("pbs"), tmp_path / "study" / "jobs" / "0001"
    submission.submit(replace(a_job(site, folder), packed=PackedRuns({"r1": ()}, 1)), site)
    programs("qstat", "", 153, "qstat: Unknown Job Id 17.server")
    write_hold(folder, Hold("17", 1, "pbs"), 1)
    (folder / "hpcbench.o17").write_text("hpcbench: job 17, attempt 1, now\nhpcbench: r1: failed (no room)\n")
    if end is not None:
        (folder / "holds" / "1.end").write_text(end)
    status = job_status(read_job(folder))
    assert (status.state, status.reason) == (state, reason)


def begin(run: Path, number: int) -> None:
    """The next attempt of the job; what the folder has was written a minute ago."""
    for path in (path for path in run.rglob("*") if path.is_file()):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 60))
    write_hold(run, Hold("17", number, "slurm", nodes=2), number)


def a_summary(status: Literal["aborted", "target_not_reached"]) -> Summary:
    """Of a run that trained as long as it should, or was stopped at its time limit."""
    if status == "aborted":
        ended = {"cause": "signal", "signal": "SIGUSR1", "reason": "stopped by SIGUSR1"}
    else:
        ended = {"cause": "epochs"}
    return Summary("cosmoflow", "t", "smoke", status=status, **ended)  # type: ignore[arg-type]


def test_a_job_that_could_not_load_its_modules_is_known_by_its_log(
    programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its submission was lost, and its scheduler has forgotten it."""
    programs("sbatch", "", 1, "sbatch: error: Socket timed out on send/recv operation")
    programs("squeue", "")
    site, run = a_site(), tmp_path / "run"
    with pytest.raises(UnansweredError):
        submission.submit(a_job(site, run), site)
    (run / "job-17.log").write_text("Lmod has detected the following error: unknown module: gpu/12\n  Try: spider\n")
    assert job_status(read_job(run)).state == "unknown", "its queue may answer later"
    monkeypatch.setattr(submission, "SETTLED_S", 0)
    status = job_status(read_job(run))
    assert status.state == "lost"
    assert status.reason == (
        "ended before it held the run folder, as where a module cannot be loaded; job-17.log: Lmod has detected the "
        "following error: unknown module: gpu/12"
    )
    with pytest.raises(InputError, match="exists and is not empty"):
        submission.submit(a_job(site, run), site)
    assert job_status(read_job(run)) == status, "the record stays beside the log"
    (run / "job-17.log").write_text("")
    assert job_status(read_job(run)).reason.endswith("; job-17.log: nothing was printed")
