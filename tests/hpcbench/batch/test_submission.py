"""The life of a job, with programs in place of a scheduler's that answer what those of a real one do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import flux, lsf, pbs, slurm, submission
from hpcbench.batch.submission import JobStatus, cancel, read_job, standing
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Status, Summary
from staging.errors import InputError
from tests.hpcbench.batch.conftest import a_job, a_site

PRINTED = {"slurm": "17;cluster\n", "pbs": "17.server\n", "flux": "f2Rd7xK\n",
           "lsf": "Job <17> is submitted to queue <normal>.\n"}  # fmt: skip
JOB_IDS = {"slurm": "17", "pbs": "17.server", "flux": "f2Rd7xK", "lsf": "17"}
SUBMITS = {"slurm": "sbatch", "pbs": "qsub", "flux": "flux", "lsf": "bsub"}
CANCELS = {"slurm": "scancel 17", "pbs": "qdel 17.server", "flux": "flux cancel f2Rd7xK", "lsf": "bkill 17"}
ASKS = {"slurm": "squeue", "pbs": "qstat", "flux": "flux", "lsf": "bjobs"}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes programs that print a text, end with a code, and note their words; nothing else is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(folder))

    def make(name: str, text: str, code: int = 0, error: str = "") -> None:
        (folder / f"{name}.out").write_text(text)
        (folder / f"{name}.err").write_text(error)
        path = folder / name
        path.write_text(
            f'#!/bin/bash\necho "{name} $*" >> {folder}/notes\n[ -t 0 ] || cat > {folder}/{name}.in\n'
            f"cat {folder}/{name}.out\ncat {folder}/{name}.err >&2\nexit {code}\n"
        )
        path.chmod(0o755)

    make.folder = folder  # type: ignore[attr-defined]
    make.notes = lambda: (folder / "notes").read_text().splitlines()  # type: ignore[attr-defined]
    return make


@pytest.mark.parametrize("scheduler", PRINTED)
def test_a_job_is_submitted_asked_for_and_cancelled(scheduler: str, programs: Any, tmp_path: Path) -> None:
    programs(SUBMITS[scheduler], PRINTED[scheduler])
    site = a_site(scheduler)
    done = submission.submit(a_job(site, tmp_path / "run"), site)
    assert done.job_id == JOB_IDS[scheduler]
    assert os.access(tmp_path / "run" / "job.sh", os.X_OK)
    if scheduler == "lsf":
        assert (programs.folder / "bsub.in").read_text() == (tmp_path / "run" / "job.sh").read_text()
    else:
        assert "job.sh" in programs.notes()[0]
    assert read_job(tmp_path / "run") == done
    record = json.loads((tmp_path / "run" / "job.json").read_text())
    assert (record["nodes"], record["ranks_per_node"], record["time_s"]) == (2, 2, 600)
    programs(CANCELS[scheduler].split()[0], "")
    cancel(done)
    assert programs.notes()[-1] == CANCELS[scheduler]


@pytest.mark.parametrize("scheduler", PRINTED)
def test_a_job_that_was_submitted_anew_is_known_by_its_newest_number(
    scheduler: str, programs: Any, tmp_path: Path
) -> None:
    programs(SUBMITS[scheduler], PRINTED[scheduler])
    site = a_site(scheduler)
    submission.submit(a_job(site, tmp_path / "run"), site)
    newer = PRINTED[scheduler].replace("17", "18").replace("f2", "f3")
    (tmp_path / "run" / "job-id").write_text(newer)
    assert read_job(tmp_path / "run").job_id == JOB_IDS[scheduler].replace("17", "18").replace("f2", "f3")


@pytest.mark.parametrize("scheduler", PRINTED)
def test_a_job_that_is_refused_leaves_nothing(scheduler: str, programs: Any, tmp_path: Path) -> None:
    programs(SUBMITS[scheduler], "", 1, "error: no such\n queue\n")
    site = a_site(scheduler)
    with pytest.raises(
        InputError, match=f"^{SUBMITS[scheduler]} refused the job: error: no such queue; change the job"
    ):
        submission.submit(a_job(site, tmp_path / "run"), site)
    assert not list((tmp_path / "run").iterdir())


def test_a_scheduler_that_is_not_there(scheduler: str, programs: Any, tmp_path: Path) -> None:
    site = a_site(scheduler)
    with pytest.raises(
        InputError, match="is not on PATH; submit on a login node, or look at the script with --dry-run"
    ):
        submission.submit(a_job(site, tmp_path / "run"), site)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_something_is_not_overwritten(programs: Any, tmp_path: Path) -> None:
    programs("sbatch", "17\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    site = a_site()
    with pytest.raises(InputError, match="exists and is not empty; give another --run-dir"):
        submission.submit(a_job(site, tmp_path / "run"), site)
    assert not (programs.folder / "notes").exists()


SLURM = {
    "PENDING Resources\n": ("waiting", "Resources"),
    "RUNNING None\n": ("running", ""),
    "COMPLETING None\n": ("running", ""),
    "TIMEOUT TimeLimit\n": ("time limit", "TimeLimit"),
    "CANCELLED by 1000|0:15\n": ("cancelled", "0:15"),
    "COMPLETED|0:0\n": ("done", ""),
    "NODE_FAIL|1:0\n": ("failed", "1:0"),
    "OUT_OF_MEMORY|0:125\n": ("failed", "0:125"),
    "JobId=17 JobName=x\n   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)\n": ("failed", "NonZeroExitCode"),
    "PREEMPTED|0:0\n": ("preempted", ""),
    "": None,
    "slurm_load_jobs error: Invalid job id specified\n": None,
}
PBS = {
    '{"Jobs": {"17.server": {"job_state": "Q", "comment": "Not enough nodes"}}}': ("waiting", "Not enough nodes"),
    '{"Jobs": {"17.server": {"job_state": "R"}}}': ("running", ""),
    '{"Jobs": {"17.server": {"job_state": "F", "Exit_status": 0}}}': ("done", ""),
    '{"Jobs": {"17.server": {"job_state": "F", "Exit_status": 3}}}': ("failed", "exit code 3"),
    '{"Jobs": {"17.server": {"job_state": "F", "Exit_status": 271}}}': ("cancelled", "exit code 271"),
    '{"Jobs": {"17.server": {"job_state": "F", "Exit_status": -29}}}': ("time limit", "exit code -29"),
    '{"Jobs": {"17.server": {"job_state": "F"}}}': ("cancelled", "before it ran"),
    '{"Jobs": {}}': None,
    "qstat: Unknown Job Id 17.server": None,
}
LSF = {
    "PEND|-|-\n": ("waiting", ""),
    "RUN|-|-\n": ("running", ""),
    "DONE|-|-\n": ("done", ""),
    "EXIT|3|-\n": ("failed", "exit code 3"),
    "EXIT|140|TERM_RUNLIMIT: job killed after reaching LSF run time limit\n": (
        "time limit", "TERM_RUNLIMIT: job killed after reaching LSF run time limit",
    ),
    "EXIT|130|TERM_OWNER: job killed by owner\n": ("cancelled", "TERM_OWNER: job killed by owner"),
    "Job <17> is not found\n": None,
}  # fmt: skip
FLUX = {
    "S|-|\n": ("waiting", ""), "R|-|\n": ("running", ""), "CD|0|\n": ("done", ""), "F|3|\n": ("failed", "exit code 3"),
    "F|142|timeout\n": ("time limit", ""), "CA|-|cancel\n": ("cancelled", ""), "TO|142|timeout\n": ("time limit", ""),
    "": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "printed", "expected"),
    [
        (module, printed, expected)
        for module, answers in ((slurm, SLURM), (pbs, PBS), (lsf, LSF), (flux, FLUX))
        for printed, expected in answers.items()
    ],
)
def test_what_schedulers_say_of_a_job(module: Any, printed: str, expected: tuple[str, str] | None) -> None:
    assert module.parse_state(printed) == expected


def test_slurm_is_asked_in_turn_until_one_answers(programs: Any, tmp_path: Path) -> None:
    programs("sbatch", "17\n")
    site = a_site()
    job = submission.submit(a_job(site, tmp_path / "run"), site)
    programs("squeue", "RUNNING None\n")
    assert standing(job) == JobStatus("running", "", "squeue")
    programs("squeue", "", 1, "Invalid job id specified")
    programs("sacct", "", 1, "Slurm accounting storage is disabled")
    programs("scontrol", "JobId=17\n JobState=COMPLETED Reason=None\n")
    assert standing(job) == JobStatus("done", "", "scontrol")
    programs("sacct", "CANCELLED by 0|0:0\n")
    assert standing(job) == JobStatus("cancelled", "", "sacct")


@pytest.mark.parametrize("scheduler", PRINTED)
def test_a_forgotten_job_is_known_by_what_the_run_left(scheduler: str, programs: Any, tmp_path: Path) -> None:
    programs(SUBMITS[scheduler], PRINTED[scheduler])
    site = a_site(scheduler)
    job = submission.submit(a_job(site, tmp_path / "run"), site)
    programs(ASKS[scheduler], "", 1)
    assert standing(job).state == "unknown"
    ends: dict[Status, str] = {"success": "done", "target_not_reached": "done", "aborted": "failed"}
    for status, state in ends.items():
        RunFolder(tmp_path / "run").write_summary(Summary("cosmoflow", "t", "smoke", status=status))
        assert (standing(job).state, standing(job).told_by) == (state, "run folder")


def test_a_folder_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no job.json; give the run folder of a job that was submitted"):
        read_job(tmp_path)
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        read_job(tmp_path)
