"""A Slurm whose jobs wait until a test says otherwise, and a child that kills itself at a change of the disk."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
echo PENDING > "jobs/$n/state"
echo "$n"
"""
SQUEUE = """#!/bin/bash
export PATH=/usr/bin:/bin
cd "$(dirname "$0")/../jobs"
[ ! -e ../down ] || { echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2; exit 1; }
for n in *; do
    [ ! -e "$n/mark" ] || case "$*" in *%k*) echo "$n|$(cat "$n/mark")|" ;; *) echo "$n|$(cat "$n/state")|None" ;; esac
done
"""
SCANCEL = """#!/bin/bash
export PATH=/usr/bin:/bin
echo CANCELLED > "$(dirname "$0")/../jobs/$1/state"
"""
CHANGES = ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "subprocess.Popen")
"""Audit events of Python that change a disk or start a child; files that are opened for writing come on top."""


class Queue:
    """A Slurm whose jobs wait until ``set`` says otherwise."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = folder / "jobs"
        self.down = folder / "down"
        for name in ("bin", "jobs", "sites"):
            (folder / name).mkdir()
        for name, text in {
            "sbatch": SBATCH.replace("{slow_s}", str(SLOW_S)),
            "squeue": SQUEUE,
            "scancel": SCANCEL,
        }.items():
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        site = "title: a cluster\nscheduler: slurm\nlauncher: srun\nnode: {cores: 4}\n"
        (folder / "sites" / "cluster.yaml").write_text(site)
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("HPCBENCH_SITES", str(folder / "sites"))

    def set(self, job: int, state: str) -> Path:
        """Give a job another state, in Slurm's words; its folder."""
        (self.jobs / str(job) / "state").write_text(f"{state}\n")
        return Path((self.jobs / str(job) / "folder").read_text().strip())

    def states(self) -> list[str]:
        """The state of each job, oldest first."""
        found = sorted(self.jobs.iterdir(), key=lambda path: int(path.name))
        return [(path / "state").read_text().strip() for path in found]

    def folders(self) -> list[str]:
        """The run folders of all jobs that were queued."""
        return sorted((each / "folder").read_text().strip() for each in self.jobs.iterdir())


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
