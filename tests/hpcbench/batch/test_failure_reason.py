"""The reason of a failure is the run's own, whatever its launcher and scheduler say after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcbench.batch.failure_reason import failure_reason, read_job_log

WHY = "/data/x: no such folder"
REPORT = """
------------------------------------------------------------
Sender: LSF System <lsfadmin@n1>
Subject: Job 17: <hpcbench> in cluster <c> Exited

Your job looked like:

------------------------------------------------------------
# LSBATCH: User input
#!/bin/bash
------------------------------------------------------------

Exited with exit code 127.

The output (if any) is above this job summary.
""".splitlines()
ENDINGS = {
    "srun": ["srun: error: n1: task 0: Exited with exit code 2", "srun: Terminating StepId=17.0",
             "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-25T14:00:00 ***",
             "srun: error: n2: task 1: Terminated", "srun: Force Terminated StepId=17.0"],
    "mpich": ["===================================================================================",
              "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "=   EXIT CODE: 2",
              "[proxy:0@n1] HYD_pmcd_pmip_control_cmd_cb: error: assert (!closed) failed"],
    "openmpi": ["prterun detected that one or more processes exited with non-zero status",
                "mpirun: error: Process name: [prterun-n1-17@1,1] Exit code:    2"],
    "pals": ["n1.hsn: rank 3 exited with code 2", "n1.hsn: rank 0 died from signal 15: error: see above"],
    "flux": ["0.201s: flux-shell[0]: FATAL: task 1: error: exit 2", "flux-job: task(s) exited with exit code 2"],
    "other ranks": ["hpcbench: aborted: rank 0 on n1 has ended", "hpcbench: aborted: rank 0 on n1 has ended"],
    "the script": ["hpcbench: error: /local/x does not exist", "rmdir: failed to remove '/local/x': error: none"],
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("before", ["", "3: ", "[1,3]<stderr>: "])
def test_the_first_word_of_the_suite_is_the_reason(ending: str, before: str) -> None:
    lines = ["hpcbench: job 17, attempt 1, Wed", "starting", f"{before}hpcbench: error: {WHY}", *ENDINGS[ending]]
    assert failure_reason(lines) == WHY


def test_it_is_that_of_the_last_attempt() -> None:
    first = ["hpcbench: job 17, attempt 1, Wed", "hpcbench: aborted: preempted"]
    assert failure_reason([*first, "hpcbench: job 17, attempt 2, Wed", f"hpcbench: error: {WHY}"]) == WHY
    assert failure_reason([*first, "hpcbench: job 17, attempt 2, Wed", "Killed"]) == "Killed"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["ModuleNotFoundError: No module named 'torch'", *ENDINGS["srun"]],
         "ModuleNotFoundError: No module named 'torch'"),
        (["srun: error: n2: task 1: Out Of Memory", *ENDINGS["srun"]], "srun: error: n2: task 1: Out Of Memory"),
        (["bash: line 7: 12 Segmentation fault", ""], "bash: line 7: 12 Segmentation fault"),
        (["bash: line 17: module: command not found", *REPORT], "bash: line 17: module: command not found"),
        (REPORT, ""),
        ([], ""),
        (["", " "], ""),
    ],
)  # fmt: skip
def test_without_a_word_of_the_suite_it_is_the_most_telling_line(lines: list[str], reason: str) -> None:
    assert failure_reason(lines) == reason


def test_the_newest_log_of_a_job_is_read(tmp_path: Path) -> None:
    assert read_job_log(tmp_path) == []
    (tmp_path / "job-17.log").write_text("old\n")
    os.utime(tmp_path / "job-17.log", (1, 1))
    (tmp_path / "job-18.log").write_bytes(b"new \xff\n")
    assert read_job_log(tmp_path) == ["new \ufffd"]
    os.mkfifo(tmp_path / "job-19.log")  # nothing waits for it
    assert read_job_log(tmp_path) == ["new \ufffd"]


def test_of_real_ranks_that_mpiexec_ends(mpiexec: str) -> None:
    """One of two ranks has bad input, and MPICH ends the other."""
    program = (
        "import sys\n"
        "from mpi4py import MPI\n"
        "if MPI.COMM_WORLD.rank == 1:\n"
        f"    print('hpcbench: error: {WHY}', file=sys.stderr, flush=True)\n"
        "    MPI.COMM_WORLD.Abort(2)\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    said: list[str] = []
    for _ in range(5):  # on a busy machine, MPICH may end before it has passed on what the ranks said
        done = subprocess.run(
            [mpiexec, "-n", "2", sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode != 0
        said = done.stdout.splitlines()
        if len(said) > 1:
            break
    assert len(said) > 1, "MPICH says something, too"
    assert failure_reason(said) == WHY
