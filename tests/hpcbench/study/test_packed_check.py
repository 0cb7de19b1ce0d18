"""The check of a packed job, by the process that then makes its runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.study.folder import StudyFolder
from tests.hpcbench.batch.waiting_slurm import Queue
from tests.hpcbench.study.conftest import FakeLauncher
from tests.hpcbench.study.test_packed_study import folder, queue, runs_of_jobs, status, words, work

__all__ = ["folder", "queue"]


def test_the_process_that_makes_the_runs_checks_the_job_first(
    queue: Queue, folder: StudyFolder, small_cosmos: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What is not as asked is said once, and is what ``status`` says; no run begins, and the job does not come back."""
    assert main(words(folder, small_cosmos)) == 0
    (job, _) = (Path(path) for path in queue.folders())
    asked = re.search(r'study execute "\$run" (--check-job) (\S+) ', (job / "job.sh").read_text())
    assert asked is not None
    assert asked[2] == "ranks=1,nodes=1,cores=4,gpus=0"
    launcher = FakeLauncher(lambda settings: 4.0)
    capsys.readouterr()
    assert work(queue, 1, launcher, monkeypatch, "FAILED", asked[1], "ranks=1,nodes=1,cores=100000,gpus=0") == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"hpcbench: error: rank 0 on node \S+ sees \d+ cores instead of 100000; .*\n", said)
    (job / "job-1.log").write_text(said)
    assert launcher.started == []
    assert main(["jobs", "--interrupted", str(job)]) == 1
    assert f"jobs/0001: 2 runs not begun: {said.split(': ', 2)[2].strip()}" in status(folder, capsys)
    assert main(["study", "resume", str(folder.path)]) == 0
    assert runs_of_jobs(folder)["0003"] == runs_of_jobs(folder)["0001"]
    enough = f"ranks=1,nodes=1,cores={len(os.sched_getaffinity(0))},gpus=0"
    assert work(queue, 3, launcher, monkeypatch, "COMPLETED", asked[1], enough) == 0
    assert "hpcbench: the job is as asked: 1 rank on 1 node with " in capsys.readouterr().out
    assert len(launcher.started) == 2


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("ranks=4", "a process that no launcher started: 1 rank instead of 4"),
        ("ranks=1,gpu=1", "--check-job (gpu=1) must be NAME=NUMBER, each name once; names:"),
    ],
)
def test_a_check_of_other_ranks_is_refused(
    asked: str, line: str, queue: Queue, folder: StudyFolder, small_cosmos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(folder, small_cosmos)) == 0
    capsys.readouterr()
    assert main(["study", "execute", str(folder.jobs / "0001"), "--check-job", asked]) == 2
    said = capsys.readouterr().err
    assert (line in said, said.count("\n")) == (True, 1)
