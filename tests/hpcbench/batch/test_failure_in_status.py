"""The reason of a failure is the same in ``hpcbench jobs`` and in the status of a study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import submission
from hpcbench.batch.submission import job_status
from hpcbench.study.run_status import run_statuses
from tests.hpcbench.batch.conftest import a_job, a_site

LOGS = {
    "ModuleNotFoundError: No module named 'torch'": ["Traceback (most recent call last):", "  File x, line 1",
        "ModuleNotFoundError: No module named 'torch'", "srun: error: n2: task 1: Exited with exit code 1"],
    "/data/x: no such folder": ["hpcbench: error: /data/x: no such folder", "srun: error: n2: task 1: Terminated"],
    "srun: error: n2: task 1: Out Of Memory": ["step 3", "srun: error: n2: task 1: Out Of Memory"],
}  # fmt: skip


@pytest.mark.parametrize("reason", LOGS)
@pytest.mark.parametrize("forgotten", [False, True])
def test_jobs_and_study_status_tell_the_same_of_a_failure(
    reason: str, forgotten: bool, programs: Any, tmp_path: Path
) -> None:
    programs("sbatch", "17\n")
    site, run = a_site(), tmp_path / "run"
    job = submission.submit(a_job(site, run), site)
    programs("squeue", "" if forgotten else "17|FAILED|NonZeroExitCode\n")
    (run / "job-17.log").write_text("\n".join(["hpcbench: job 17, attempt 1, now", *LOGS[reason]]) + "\n")
    assert job_status(job).reason == reason
    assert run_statuses({run: job})[run].reason == reason
