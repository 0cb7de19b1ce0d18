"""A submission killed at every write, rename and start of a child: each run gets exactly one job in the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import submission
from hpcbench.batch.submission import job_status, read_job
from hpcbench.cli.main import main

SLOW_S = 0.05
"""The scheduler's command takes so long to queue a job, and goes on when who called it is killed."""
SBATCH = """#!/bin/bash
export PATH=/usr/bin:/bin
folder=$PWD
cd "$(dirname "$0")/.."
mark=$(sed -n 's/^#SBATCH --comment=//p' "$folder/job.sh")
sleep {slow_s}
n=1
until mkdir "jobs/$n" 2> /dev/null; do n=$((n + 1)); done
echo "$mark" > "jobs/$n/mark"
echo "$folder" > "jobs/$n/folder"
echo "$n"
"""
SQUEUE = """#!/bin/bash
export PATH=/usr/bin:/bin
cd "$(dirname "$0")/../jobs"
[ ! -e ../down ] || { echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2; exit 1; }
for n in *; do
    [ ! -e "$n/mark" ] || case "$*" in *%k*) echo "$n|$(cat "$n/mark")" ;; *) echo "$n|PENDING|Priority" ;; esac
done
"""
CHANGES = ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "subprocess.Popen")
"""Audit events of Python that change a disk or start a child; files that are opened for writing come on top."""


class Queue:
    """A Slurm whose jobs all wait."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = folder / "jobs"
        self.down = folder / "down"
        for name in ("bin", "jobs", "sites"):
            (folder / name).mkdir()
        for name, text in {"sbatch": SBATCH.replace("{slow_s}", str(SLOW_S)), "squeue": SQUEUE}.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        site = "title: a cluster\nscheduler: slurm\nlauncher: srun\nnode: {cores: 4}\n"
        (folder / "sites" / "cluster.yaml").write_text(site)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("HPCBENCH_SITES", str(folder / "sites"))

    def folders(self) -> list[str]:
        """The run folders of all jobs that were queued."""
        return sorted((each / "folder").read_text().strip() for each in self.jobs.iterdir())


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(tmp_path, monkeypatch)


def killed(act: Callable[[], object], at: int) -> bool:
    """Run ``act`` in a child that kills itself before its change number ``at``; whether it came so far."""
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
        seen = 0

        def watch(event: str, args: tuple[Any, ...]) -> None:
            nonlocal seen
            writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
            if event in CHANGES or writes:
                seen += 1
                if seen == at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        act()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


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
