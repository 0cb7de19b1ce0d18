"""A Slurm whose jobs wait until a test says otherwise, and a child that kills itself at a change of the disk."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SLOW_S = 0.05
"""The scheduler's command takes so long to queue a job, and goes on when who called it is killed."""
HEAD = """#!/bin/bash
export PATH=/usr/bin:/bin
fake=$(dirname "$(dirname "$(realpath "$0")")") folder=$PWD
cd "$fake/jobs"
basename "$0" >> ../asked
fail() { echo "$1" >&2; exit 1; }
if [ -e ../down ]; then sleep "0$(cat ../down)"; away=yes; elif rm ../fails 2> /dev/null; then away=yes; fi
"""
TIMED_OUT = "Socket timed out on send/recv operation"
SBATCH = f"""\
[ ! "$away" ] || fail "sbatch: error: Batch job submission failed: {TIMED_OUT}"
mark=$(sed -n 's/^#SBATCH --comment=//p' "$folder/job.sh")
sleep {SLOW_S}
n=1
until mkdir "$n" 2> /dev/null; do n=$((n + 1)); done
echo PENDING > "$n/state"
echo "$folder" > "$n/folder"
echo "$mark" > "$n/mark"
echo "$n"
"""
SQUEUE = f"""\
[ ! "$away" ] || fail "slurm_load_jobs error: {TIMED_OUT}"
asked=
for word in "$@"; do case $word in --jobs=*) asked=,${{word#--jobs=}}, ;; esac; done
known=
for n in *; do
    [ -e "$n/mark" ] || continue
    case "$*" in *%k*) echo "$n|$(cat "$n/mark")|" ;; esac
    case $asked in *,$n,*) echo "$n|$(cat "$n/state")|None"; known=yes ;; esac
done
case $asked in
*,*,*,) ;;
,*,) [ "$known" ] || fail "slurm_load_jobs error: Invalid job id specified" ;;
esac
"""
SACCT = """\
fail "Slurm accounting storage is disabled"
"""
SCANCEL = f"""\
[ ! "$away" ] || fail "scancel: error: Kill job error on job id $1: {TIMED_OUT}"
echo CANCELLED > "$1/state"
"""
CHANGES = ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "subprocess.Popen")
"""Audit events of Python that change a disk or start a child; files that are opened for writing come on top."""


class Queue:
    """A Slurm whose jobs wait until ``set`` says otherwise, with the real one's exit codes and no accounting.

    Nobody answers while there is the file ``down``, and says so after as many seconds as stand in it; a file ``fails``
    lets the next command fail.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs = folder / "jobs"
        self.down = folder / "down"
        self.fails = folder / "fails"
        self.asked = folder / "asked"
        for name in ("bin", "jobs", "sites"):
            (folder / name).mkdir()
        for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "sacct": SACCT, "scancel": SCANCEL}.items():
            (folder / "bin" / name).write_text(HEAD + text)
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
        return sorted((each.parent / "folder").read_text().strip() for each in self.jobs.glob("*/mark"))

    def questions(self) -> Counter[str]:
        """How often each command was called since the last look at this."""
        found = Counter(self.asked.read_text().split() if self.asked.exists() else [])
        self.asked.unlink(missing_ok=True)
        return found


def killed(act: Callable[[], object], at: int) -> bool:
    """Run ``act`` in a child that kills itself before its change number ``at``; whether it came so far."""
    return watched(act, at) is None


def changes(act: Callable[[], object]) -> int:
    """How many changes ``act`` makes, in a child that nobody kills."""
    found = watched(act)
    assert found is not None
    return found


def watched(act: Callable[[], object], at: int = 0) -> int | None:
    """Run ``act`` in a child; the number of its changes, or none if it killed itself before number ``at``."""
    ours, its = os.pipe()
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
        os.write(its, str(seen).encode())
        os._exit(0)
    os.close(its)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    said = os.read(ours, 20)
    os.close(ours)
    assert code == (0 if said else -signal.SIGKILL)
    return int(said) if said else None
