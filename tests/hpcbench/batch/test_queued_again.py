"""What a job script does after an interruption: the job is queued again, or hands over to nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hpcbench.batch.conftest import a_job, a_site
from tests.hpcbench.batch.test_scripts import AGAIN, FLUX, HPCBENCH, fakes, run_script

__all__ = ["fakes"]


@pytest.mark.parametrize("scheduler", AGAIN)
@pytest.mark.parametrize("code", [138, 143, 137, 1])
def test_a_run_that_its_folder_calls_interrupted_is_queued_again(
    scheduler: str, fakes: Path, tmp_path: Path, code: int
) -> None:
    """Whatever the launcher returned for it."""
    site = a_site(scheduler)
    job = a_job(site, tmp_path / "run", attempts=3)
    before = {"TRAIN": str(code), "INTERRUPTED": "0", "HPCBENCH_ATTEMPT": "2", "SLURM_RESTART_COUNT": "1"}
    found, calls = run_script(job, site, fakes, **before)
    assert found == code
    assert AGAIN[scheduler] in calls
    assert f"hpcbench jobs --interrupted --hold {tmp_path}/notes.hold {tmp_path}/run" in calls
    assert (tmp_path / "notes.hold.next").exists() is (scheduler != "slurm")
    found, calls = run_script(job, site, fakes, **before | {"HPCBENCH_ATTEMPT": "3", "SLURM_RESTART_COUNT": "2"})
    assert found == code
    assert AGAIN[scheduler].replace("=3", "=4") not in calls
    _, calls = run_script(job, site, fakes, **before | {"INTERRUPTED": "1"})
    assert AGAIN[scheduler] not in calls


@pytest.mark.parametrize("scheduler", AGAIN)
def test_a_job_that_cannot_be_queued_again_hands_over_to_nobody(scheduler: str, fakes: Path, tmp_path: Path) -> None:
    """Or a script submitted by hand would wait for it; where the scheduler gives new ids, one may be in the queue."""
    for name in ("scontrol", "qsub", "bsub"):
        (fakes / name).write_text("#!/bin/bash\nexit 1\n")
    (fakes / "flux").write_text(FLUX + 'case "$1" in --parent) exit 1 ;; esac\n')
    site = a_site(scheduler)
    told = HPCBENCH.replace(
        '[ "$1" != jobs ]', '[ "$1 $2" != "jobs --interrupted" ] || touch "$4.next"\n[ "$1" != jobs ]'
    )
    (fakes / "hpcbench").write_text(told)
    code, _ = run_script(a_job(site, tmp_path / "run", attempts=3), site, fakes, TRAIN="75", INTERRUPTED="0")
    assert code == 75
    assert (tmp_path / "notes.hold.end").exists()
    assert (tmp_path / "notes.hold.next").exists() is (scheduler != "slurm")
