"""``hpcbench jobs`` with many folders: one that is damaged, or whose job cannot be cancelled, hides no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.batch import submission
from hpcbench.cli.main import main
from tests.hpcbench.batch.conftest import a_job, a_site
from tests.hpcbench.batch.waiting_slurm import Queue

RECORDS = ("job.json", "attempts.json", "holds/1.json")


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(tmp_path, monkeypatch)


@pytest.fixture
def runs(queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Three run folders, whose jobs 1, 2 and 3 wait."""
    monkeypatch.chdir(tmp_path)
    site, folders = a_site(), [Path("runs") / name for name in "abc"]
    for folder in folders:
        submission.submit(a_job(site, folder), site)
    return folders


def jobs(*words: object) -> int:
    return main(["jobs", *map(str, words)])


def damage(folder: Path, name: str) -> None:
    """Cut off a file of a run folder; a hold without an attempt is one that is damaged."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{")
    if name == "attempts.json":
        hold = {"job_id": "1", "attempt": 1, "scheduler": "slurm", "mark": "", "nodes": 1, "process": 0, "host": "",
                "began": 1.0}  # fmt: skip
        (folder / "holds").mkdir()
        (folder / "holds" / "1.json").write_text(json.dumps(hold))


@pytest.mark.parametrize("name", RECORDS)
def test_a_damaged_folder_is_a_row_beside_the_others(
    name: str, runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    damage(runs[0], name)
    assert jobs(*runs) == 2
    said = capsys.readouterr().out
    states = {row[0]: row[4:] for line in said.splitlines() if (row := line.split()) and row[0] in map(str, runs)}
    assert [states[str(run)][0] for run in runs] == ["damaged", "waiting", "waiting"]
    assert f"{runs[0]}: {runs[0] / name}: is damaged" in said
    assert max(map(len, said.splitlines())) <= 100
    assert jobs(runs[0]) == 2
    assert capsys.readouterr().err.startswith(f"hpcbench: error: {runs[0] / name}: is damaged")


def test_a_job_that_cannot_be_cancelled_does_not_keep_the_others(
    queue: Queue, runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(runs[0], "job.json")
    scancel = tmp_path / "bin" / "scancel"
    words = scancel.read_text().splitlines()
    refuses = (
        '[ "$1" != 2 ] || { echo "scancel: error: Kill job error on job id 2: Invalid job id specified" >&2; exit 1; }'
    )
    scancel.write_text("\n".join([words[0], refuses, *words[1:]]) + "\n")
    assert jobs("--cancel", *runs) == 2
    said = capsys.readouterr()
    assert said.out == f"job 3 of {runs[2]} is being cancelled\n"
    assert queue.states() == ["PENDING", "PENDING", "CANCELLED"]
    errors = said.err.splitlines()
    assert [line.startswith("hpcbench: error: ") for line in errors] == [True, True]
    assert "job.json: is damaged" in errors[0]
    assert "scancel did not cancel job 2" in errors[1]


def test_a_job_that_its_scheduler_has_forgotten_and_whose_summary_is_damaged(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs[1] / "summary.json").write_text("{")
    (tmp_path / "bin" / "squeue").write_text("#!/bin/bash\nexit 0\n")
    (tmp_path / "bin" / "sacct").write_text("#!/bin/bash\nexit 0\n")
    (tmp_path / "bin" / "sacct").chmod(0o755)
    assert jobs(*runs) == 0
    said = capsys.readouterr().out
    assert said.count(" lost ") == 3
    assert f"{runs[1]}: the scheduler no longer knows it, and {runs[1] / 'summary.json'}: " in said
    assert max(map(len, said.splitlines())) <= 100
