"""Two submissions into one folder: one job is queued, and the record is that of its submission."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import submission
from hpcbench.batch.job_record import JobHandle, read_job
from hpcbench.batch.scheduler import Reply
from hpcbench.batch.submission import job_status
from staging.errors import InputError
from tests.hpcbench.batch.conftest import a_job, a_site


@pytest.mark.parametrize("settled_s", [300.0, 0.0], ids=["the first one is young", "the first one is given up"])
def test_a_second_submission_while_the_first_has_no_script_yet(
    settled_s: float, programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly one of the two is queued: the second one waits, or the first one, which was too slow, stops."""
    programs("sbatch", "17\n")
    site, run, write = a_site(), tmp_path / "run", submission.write_script
    first, second = a_job(site, run), a_job(site, run)
    monkeypatch.setattr(submission, "SETTLED_S", settled_s)
    between: list[Any] = []

    def slow(job: Any, script: str) -> None:
        if job is first:
            between.append(job_status(read_job(run)).state)
            with contextlib.suppress(InputError):
                between.append(submission.submit(second, site))
        write(job, script)

    monkeypatch.setattr(submission, "write_script", slow)
    if settled_s:
        submission.submit(first, site)
        assert between == ["unknown"]
    else:
        with pytest.raises(InputError, match="exists and is not empty; give another --run-dir"):
            submission.submit(first, site)
        assert between == ["lost", read_job(run)]
    assert programs.notes() == ["sbatch --parsable job.sh"]
    job = first if settled_s else second
    assert read_job(run).mark == job.mark
    assert job.mark in (run / "job.sh").read_text()
    assert {path.name for path in run.iterdir()} == {"job.json", "job.sh"}


def test_a_folder_that_is_taken_while_the_scheduler_takes_its_job(
    programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the other submission stays, and this job finds there that it is not wanted."""
    programs("sbatch", "17\n")
    site, run, ask = a_site(), tmp_path / "run", submission.ask

    def slow(*words: Any) -> Reply:
        (run / "job.json").write_text(json.dumps({"mark": "another"}))
        return ask(*words)

    monkeypatch.setattr(submission, "ask", slow)
    monkeypatch.setattr(submission.find_scheduler("slurm"), "cancel_command", lambda job_id: ["sh", "-c", "end 17"])
    with pytest.raises(InputError, match=r"submitted again while sbatch took job 17, .*; cancel it: sh -c 'end 17'$"):
        submission.submit(a_job(site, run), site)
    assert json.loads((run / "job.json").read_text()) == {"mark": "another"}


def test_a_record_that_another_submission_wrote_is_not_given_up(tmp_path: Path) -> None:
    record = {"job_id": None, "scheduler": "slurm", "site": "here", "submitted": "2026-11-26", "mark": "newer"}
    (tmp_path / "job.json").write_text(json.dumps(record))
    submission.give_up(JobHandle(tmp_path, "slurm", "", "here", "older"), tmp_path / ".job.json.1")
    assert json.loads((tmp_path / "job.json").read_text()) == record
    submission.give_up(JobHandle(tmp_path, "slurm", "", "here", "newer"), tmp_path / ".job.json.1")
    submission.give_up(JobHandle(tmp_path, "slurm", "", "here", "newer"), tmp_path / ".job.json.1")
    assert not list(tmp_path.iterdir())
