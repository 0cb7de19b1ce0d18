"""A submission killed at every write, rename and start of a child: each run gets exactly one job in the end."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from hpcbench.batch import submission
from hpcbench.batch.job_record import read_job
from hpcbench.batch.submission import job_status
from hpcbench.cli.main import main
from tests.hpcbench.batch.waiting_slurm import SLOW_S, Queue, killed


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(tmp_path, monkeypatch)


def submit(run: Path) -> int:
    """``hpcbench submit`` into a run folder."""
    words = ["submit", "cosmoflow", "--site", "cluster", "--preset", "smoke", "--run-dir", str(run), "--no-stage"]
    return main([*words, "--data.root", str(run.parent)])


@pytest.mark.slow
def test_a_submission_killed_at_any_change_is_found_or_made_again(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submission, "SETTLED_S", 1.0)
    ends = []
    for number in range(1, 1000):
        run = tmp_path / "runs" / str(number)
        was_killed = killed(lambda run=run: submit(run), number)  # type: ignore[misc]
        queue.down.touch()
        again = submit(run) if (run / "job.json").exists() and (run / "job.sh").exists() else None
        assert again in (None, 2), "nothing is submitted while nobody can be asked"
        queue.down.unlink()
        deadline = time.monotonic() + 20
        while (code := submit(run)) != 0 and time.monotonic() < deadline:
            status = job_status(read_job(run))
            if status.state == "waiting":
                break
            assert status.state in ("unknown", "lost")
            time.sleep(0.1)
        ends.append("found" if code else "made")
        time.sleep(2 * SLOW_S)
        assert queue.folders().count(str(run)) == 1
        assert read_job(run).job_id
        if not was_killed:
            break
    assert number > 8
    assert set(ends) == {"found", "made"}


def test_a_submission_whose_command_does_not_answer_in_time(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(submission, "LIMIT_S", SLOW_S / 5)
    run = tmp_path / "runs" / "late"
    assert submit(run) == 2
    error = capsys.readouterr().err
    assert error.startswith("hpcbench: error: sbatch did not say whether it took the job (no answer within")
    assert error.count("\n") == 1
    monkeypatch.setattr(submission, "LIMIT_S", 60)
    subprocess.run(["bash", str(tmp_path / "bin" / "sbatch")], cwd=run, check=True, capture_output=True)
    assert job_status(read_job(run)).state == "waiting"
    assert submit(run) == 2
    assert queue.folders().count(str(run)) == 1
