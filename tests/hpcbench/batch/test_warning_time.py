"""The warning before the time limit against the time that checkpoints took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.batch.continuation import lost_steps
from hpcbench.batch.packed_runs import PackedRuns
from hpcbench.batch.warning_time import comparison, too_short
from hpcbench.cli.main import main
from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.run_folder import RunFolder
from hpcbench.study.job_runs import LONGEST_S, first_pause_s
from staging.ranks.signals import WARNING_VARIABLE


def saved(folder: Path, *seconds: float) -> None:
    """Attempts with a checkpoint each, which took so long to write."""
    saves = [[{"step": 1, "stall_s": 1.0, "copy_s": 0.5, "write_bytes": 1, "write_s": each}] for each in seconds]
    Attempts([Attempt(0.0, 1.0, 0, 1, saves=each) for each in saves]).write(folder)


@pytest.mark.parametrize(("warn_s", "short"), [(120, True), (161, False)])
def test_a_checkpoint_that_takes_more_than_half_of_the_warning_time(warn_s: int, short: bool, tmp_path: Path) -> None:
    assert comparison(tmp_path, warn_s) == ("", False)
    saved(tmp_path, 79.5, 3.0)
    said = f"a checkpoint of this run took 80 s, and the warning comes {warn_s} s before the time limit"
    (tmp_path / "job.json").write_text(json.dumps({"warn_s": warn_s}))
    assert too_short(tmp_path) == ([f"{said}; give the next job --warn-s 160"] if short else [])
    assert comparison(tmp_path, warn_s)[0].startswith(said)


def test_the_slowest_checkpoint_of_packed_runs_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They lie in the folders of the runs, of which one has none, and one is damaged."""
    job = tmp_path / "study" / "jobs" / "0001"
    job.mkdir(parents=True)
    packed = PackedRuns(dict.fromkeys(("a", "b", "c", "d"), ("cosmoflow",)), side_by_side=2)
    record = {"job_id": "17", "scheduler": "slurm", "site": "here", "submitted": "2026-03-14T09:26:53", "warn_s": 120}
    (job / "job.json").write_text(json.dumps(record | {"packed_runs": packed.as_dict()}))
    assert comparison(job, 120) == ("", False)
    for name, seconds in (("a", 3.0), ("b", 79.5)):
        (job.parents[1] / "runs" / name).mkdir(parents=True)
        saved(job.parents[1] / "runs" / name, seconds)
    (job.parents[1] / "runs" / "d").mkdir()
    (job.parents[1] / "runs" / "d" / "attempts.json").write_text("{")
    said = "a checkpoint of run b took 80 s, and the warning comes 120 s before the time limit"
    assert too_short(job) == [f"{said}; give the next job --warn-s 160"]
    monkeypatch.setenv(WARNING_VARIABLE, "120")
    assert main(["jobs", "--take", "17", "--nodes", "1", str(job)]) == 0
    assert f"hpcbench: {said}; give the next job --warn-s 160\n" in capsys.readouterr().err


def test_a_job_of_unknown_warning_time_is_not_judged(tmp_path: Path) -> None:
    saved(tmp_path, 80.0)
    assert too_short(tmp_path) == []


def test_what_a_run_lost_that_was_killed(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert lost_steps(tmp_path) == ""
    folder.append_rows("steps.csv", [{"epoch": 1, "step": step, "lr": 0.1} for step in (1, 2, 3)])
    assert lost_steps(tmp_path) == " and lost 3 steps since its start, since there was no checkpoint"
    folder.checkpoints.mkdir()
    for name in ("epoch-0001-step-00000002.pt", "epoch-0001-step-00000002.json"):
        (folder.checkpoints / name).touch()
    assert lost_steps(tmp_path) == " and lost 1 step since the checkpoint at step 2"


def test_pauses_between_looks_grow_with_the_jobs() -> None:
    assert [first_pause_s(jobs) for jobs in (1, 100, 10**6)] == [3.0, 10.0, LONGEST_S]
