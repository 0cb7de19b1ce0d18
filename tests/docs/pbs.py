#!/usr/bin/env python3
"""A PBS of one node for tests: ``qsub``, ``qstat``, ``qselect`` and ``qdel`` by the name it is called by.

Jobs of one node run one after the other, as processes of this machine; larger ones wait for ever.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

NAME = Path(sys.argv[0]).name
JOBS = Path(sys.argv[0]).absolute().parent.parent / "pbs"


def qsub(words: list[str]) -> None:
    """Queue the script and print the job's id."""
    script = Path(words[-1]).absolute()
    number = 1
    while True:
        with contextlib.suppress(FileExistsError):
            (JOBS / str(number)).mkdir(parents=True)
            break
        number += 1
    (JOBS / str(number) / "script").write_text(str(script))
    if re.search(r"^#PBS -l select=1\b", script.read_text(), re.MULTILINE):
        command = [sys.executable, str(Path(__file__).resolve()), str(JOBS), str(number)]
        subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    print(f"{number}.here")


def run(number: str) -> None:
    """Run a job when the node is free."""
    job = JOBS / number
    script = Path((job / "script").read_text())
    with (JOBS / "node").open("w") as node, (script.parent / "job.log").open("w") as log:
        fcntl.flock(node, fcntl.LOCK_EX)
        environ = {**os.environ, "PBS_JOBID": f"{number}.here"}
        process = subprocess.Popen(["bash", script], cwd=script.parent, stdout=log, stderr=log, env=environ)
        (job / "pid").write_text(str(process.pid))
        code = process.wait()
        (job / "exit").write_text(str(code if code >= 0 else 256 - code))


def qstat() -> None:
    """Describe all jobs, as ``-x -f -F json`` does."""
    found = {}
    for job in (path for path in JOBS.glob("*") if path.is_dir()):
        mark = re.search(r"^#PBS -v (.*)", Path((job / "script").read_text()).read_text(), re.MULTILINE)
        state = "F" if (job / "exit").exists() else "R" if (job / "pid").exists() else "Q"
        ended = {"Exit_status": int((job / "exit").read_text())} if state == "F" else {}
        found[f"{job.name}.here"] = {"job_state": state, "Variable_List": mark[1] if mark else "", **ended}
    print(json.dumps({"Jobs": found}))


def qdel(number: str) -> None:
    """End a job."""
    job = JOBS / number
    if (job / "pid").exists():
        os.kill(int((job / "pid").read_text()), signal.SIGTERM)
    else:
        (job / "exit").write_text("271")


if __name__ != "__main__":
    raise ImportError("this is a program")
if NAME == "qsub":
    qsub(sys.argv[1:])
elif NAME == "qstat":
    qstat()
elif NAME == "qselect":
    print("\n".join(f"{path.name}.here" for path in JOBS.glob("*") if path.is_dir()))
elif NAME == "qdel":
    qdel(sys.argv[1].split(".")[0])
else:
    JOBS = Path(sys.argv[1])
    run(sys.argv[2])
