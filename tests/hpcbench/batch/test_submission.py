"""The life of a job, with programs in place of a scheduler's that answer what those of a real one do."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import submission
from hpcbench.batch.holds import Hold, write_hold
from hpcbench.batch.job_record import read_job
from hpcbench.batch.scheduler import JobStatus, Reply, UnreachableError
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.batch.submission import UnansweredError, cancel, job_status, job_statuses
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Status, Summary
from staging.errors import InputError
from tests.hpcbench.batch.conftest import a_job, a_site
from tests.hpcbench.batch.test_replies import LOST, REFUSALS

PRINTED = {"slurm": "17;cluster\n", "pbs": "17.server\n", "flux": "f2Rd7xK\n",
           "lsf": "Job <17> is submitted to queue <normal>.\n"}  # fmt: skip
JOB_IDS = {"slurm": "17", "pbs": "17.server", "flux": "f2Rd7xK", "lsf": "17"}
SUBMITS = {"slurm": "sbatch", "pbs": "qsub", "flux": "flux", "lsf": "bsub"}
CANCELS = {"slurm": "scancel 17", "pbs": "qdel 17.server", "flux": "flux cancel f2Rd7xK", "lsf": "bkill 17"}
ASKS = {"slurm": "squeue", "pbs": "qstat", "flux": "flux", "lsf": "bjobs"}


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
    write_hold(tmp_path / "run", Hold.here("16", 1, scheduler, "", 2, 0), 1)
    (tmp_path / "run" / "holds" / "1.next").write_text(newer)
    assert read_job(tmp_path / "run").job_id == JOB_IDS[scheduler].replace("17", "18").replace("f2", "f3")


@pytest.mark.parametrize("scheduler", PRINTED)
def test_a_job_that_is_refused_leaves_nothing(scheduler: str, programs: Any, tmp_path: Path) -> None:
    programs(SUBMITS[scheduler], "", 1, f"{REFUSALS[scheduler][0]}\n Ask  for help.\n")
    site = a_site(scheduler)
    words = f"^{SUBMITS[scheduler]} refused the job: {re.escape(REFUSALS[scheduler][0])} Ask for help.; change the job"
    with pytest.raises(InputError, match=words):
        submission.submit(a_job(site, tmp_path / "run"), site)
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match=words):
        submission.submit(a_job(site, tmp_path / "mine"), site)
    assert not list((tmp_path / "mine").iterdir()), "a folder of the user's own stays"


@pytest.mark.parametrize("scheduler", PRINTED)
def test_a_command_that_is_killed_leaves_the_record(scheduler: str, programs: Any, tmp_path: Path) -> None:
    site, run = a_site(scheduler), tmp_path / "run"
    programs(SUBMITS[scheduler], "", 137, f"{REFUSALS[scheduler][0]}\nline 3: 12 Killed\n")
    with pytest.raises(UnansweredError, match="did not say whether it took the job"):
        submission.submit(a_job(site, run), site)
    assert {path.name for path in run.iterdir()} == {"job.json", "job.sh"}
    assert (read_job(run).job_id, job_status(read_job(run)).state) == ("", "unknown")
    (programs.folder / SUBMITS[scheduler]).write_text("#!/bin/bash\nkill -KILL $$\n")
    with pytest.raises(UnansweredError, match=r"exit code -9\); see: hpcbench jobs"):
        submission.submit(a_job(site, tmp_path / "other"), site)
    assert (tmp_path / "other" / "job.json").exists()


def test_a_scheduler_that_is_not_there(scheduler: str, programs: Any, tmp_path: Path) -> None:
    site = a_site(scheduler)
    with pytest.raises(
        InputError, match="is not on PATH; submit on a login node, or look at the script with --dry-run"
    ):
        submission.submit(a_job(site, tmp_path / "run"), site)
    assert not (tmp_path / "run").exists()


def test_a_filesystem_without_links(programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*args: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    programs("sbatch", "17\n")
    site, run = a_site(), tmp_path / "run"
    assert submission.submit(a_job(site, run), site).job_id == "17"
    assert {path.name for path in run.iterdir()} == {"job.json", "job.sh"}
    with pytest.raises(FileExistsError):
        submission.take_name(run / "job.sh", run / "job.json")


def test_a_folder_that_holds_something_is_not_overwritten(programs: Any, tmp_path: Path) -> None:
    programs("sbatch", "17\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").touch()
    site = a_site()
    with pytest.raises(InputError, match="exists and is not empty; give another --run-dir"):
        submission.submit(a_job(site, tmp_path / "run"), site)
    assert not (programs.folder / "notes").exists()


def test_a_name_that_is_not_utf_8_is_refused_before_the_folder_is_taken(
    scheduler: str, programs: Any, tmp_path: Path
) -> None:
    programs({**SUBMITS, "local": "bash"}[scheduler], "17\n")
    site = a_site(scheduler)
    data = a_job(site, tmp_path / "run", arguments=("--data.root", "d\udcff"))
    work_dir = replace(a_job(site, tmp_path / "run"), work_dir=tmp_path / "d\udcff")
    for job in (a_job(site, tmp_path / "n\udcff"), data, work_dir):
        with pytest.raises(InputError, match=r"would have a line that is not UTF-8, .*; rename that$"):
            submission.submit(job, site)
        assert not job.folder.exists()


FORMS = {"slurm": "{}|{}", "lsf": "{}|{}", "flux": "{}|17|{}"}
STATES: dict[str, dict[str, tuple[str, str]]] = {
    "slurm": {
        "PENDING|Resources": ("waiting", "Resources"), "RUNNING|None": ("running", ""),
        "COMPLETING|None": ("running", ""), "TIMEOUT|TimeLimit": ("time limit", "TimeLimit"),
        "CANCELLED by 1000|0:15": ("cancelled", "0:15"), "COMPLETED|0:0": ("done", ""),
        "NODE_FAIL|1:0": ("failed", "1:0"), "OUT_OF_MEMORY|0:125": ("failed", "0:125"),
        "PREEMPTED|0:0": ("preempted", ""), "EXPEDITING|None": ("waiting", ""),
        "SOME_DAY|None": ("unknown", "squeue says SOME_DAY"),
    },
    "lsf": {
        "PEND|-|-": ("waiting", ""), "RUN|-|-": ("running", ""), "DONE|-|-": ("done", ""),
        "EXIT|3|-": ("failed", "exit code 3"), "EXIT|140|TERM_RUNLIMIT: x": ("time limit", "TERM_RUNLIMIT: x"),
        "EXIT|130|TERM_OWNER: killed by owner": ("cancelled", "TERM_OWNER: killed by owner"),
        "UNKWN|-|-": ("unknown", "bjobs says UNKWN, since LSF cannot reach its node"),
    },
    "flux": {
        "S|-|": ("waiting", ""), "R|-|": ("running", ""), "CD|0|": ("done", ""), "F|3|": ("failed", "exit code 3"),
        "F|142|timeout": ("time limit", ""), "CA|-|cancel": ("cancelled", ""), "TO|142|timeout": ("time limit", ""),
    },
}  # fmt: skip
PBS = [
    ({"job_state": "Q", "comment": "Not enough nodes"}, ("waiting", "Not enough nodes")),
    ({"job_state": "R"}, ("running", "")), ({"job_state": "F", "Exit_status": 0}, ("done", "")),
    ({"job_state": "F", "Exit_status": 3}, ("failed", "exit code 3")),
    ({"job_state": "F", "Exit_status": 271}, ("cancelled", "exit code 271")),
    ({"job_state": "F", "Exit_status": 143, "substate": 91}, ("cancelled", "exit code 143")),
    ({"job_state": "F", "Exit_status": 265, "substate": "91"}, ("cancelled", "exit code 265")),
    ({"job_state": "F", "Exit_status": 0, "substate": 91}, ("done", "")),
    ({"job_state": "F", "Exit_status": 1, "substate": 93}, ("failed", "exit code 1")),
    ({"job_state": "F", "Exit_status": -29}, ("time limit", "exit code -29")),
    ({"job_state": "F"}, ("cancelled", "before it ran")),
]  # fmt: skip
ANSWERS = [
    *((name, FORMS[name].format(JOB_IDS[name], line) + "\n", state) for name in STATES
      for line, state in STATES[name].items()),
    *(("pbs", json.dumps({"Jobs": {"17.server": job}}), state) for job, state in PBS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "printed", "expected"), ANSWERS)
def test_what_schedulers_say_of_a_job(name: str, printed: str, expected: tuple[str, str]) -> None:
    found = SCHEDULERS[name].query([JOB_IDS[name]], lambda command: Reply(0, printed))
    assert {key: (each.state, each.reason) for key, each in found.items()} == {JOB_IDS[name]: expected}


def test_a_job_whose_node_lsf_cannot_reach_leaves_the_others_known() -> None:
    lines = "17|UNKWN|-|-\n18|RUN|-|-\n"
    found = SCHEDULERS["lsf"].query(["17", "18"], lambda command: Reply(0, lines))
    assert {job_id: each.state for job_id, each in found.items()} == {"17": "unknown", "18": "running"}


FORGOTTEN = {
    "slurm": (1, "slurm_load_jobs error: Invalid job id specified"), "pbs": (153, "qstat: Unknown Job Id 17.server"),
    "lsf": (255, "Job <17> is not found"), "flux": (1, "flux-jobs: ERROR: JobID f2Rd7xK unknown"),
}  # fmt: skip
DOWN = {
    "slurm": ["slurm_load_jobs error: Socket timed out on send/recv operation",
              "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"],
    "pbs": ["Connection refused\nqstat: cannot connect to server pbs (errno=111)", ""],
    "lsf": ["LSF is down. Please wait ...", ""],
    "flux": ["flux-jobs: ERROR: Unable to connect to Flux: broker socket: No such file or directory", ""],
}  # fmt: skip


@pytest.mark.parametrize("name", FORGOTTEN)
def test_a_forgotten_job_is_not_one_of_a_scheduler_that_is_down(name: str) -> None:
    code, words = FORGOTTEN[name]
    no_accounting = Reply(1, "", "Slurm accounting storage is disabled")
    forgot = SCHEDULERS[name].query(
        [JOB_IDS[name]], lambda command: no_accounting if command[0] == "sacct" else Reply(code, "", words)
    )
    assert forgot == {}
    for words in DOWN[name]:
        with pytest.raises(UnreachableError):
            SCHEDULERS[name].query([JOB_IDS[name]], lambda command, words=words: Reply(1, "", words))
    with pytest.raises(UnreachableError):
        SCHEDULERS[name].query([JOB_IDS[name]], lambda command: Reply(None, "", "no answer within 60 s"))


def test_an_accounting_that_is_down_is_not_one_that_there_is_none_of() -> None:
    def ask(command: Any) -> Reply:
        down = "sacct: error: Sending PersistInit msg: Connection refused"
        return Reply(1, "", down) if command[0] == "sacct" else Reply(0, "")

    with pytest.raises(UnreachableError, match="sacct"):
        SCHEDULERS["slurm"].query(["17", "18"], ask)


def test_slurm_s_queue_is_asked_first_and_its_accounting_for_the_rest(programs: Any, tmp_path: Path) -> None:
    programs("sbatch", "17\n")
    site = a_site()
    jobs = [submission.submit(a_job(site, tmp_path / "a"), site)]
    programs("sbatch", "18\n")
    jobs.append(submission.submit(a_job(site, tmp_path / "b"), site))
    programs("squeue", "17|RUNNING|None\n")
    programs("sacct", "18|CANCELLED by 0|0:0\n")
    found = [JobStatus("running", "", "squeue"), JobStatus("cancelled", "", "sacct")]
    assert job_statuses(jobs) == found
    questions = [line for line in programs.notes() if line.startswith("s") and not line.startswith("sbatch")]
    assert len(questions) == 2
    assert "--jobs=17,18" in questions[0]
    assert "--jobs=18" in questions[1]


@pytest.mark.slow
def test_a_hundred_jobs_are_one_question(programs: Any, tmp_path: Path) -> None:
    site, jobs = a_site(), []
    for number in range(100):
        programs("sbatch", f"{number}\n")
        jobs.append(submission.submit(a_job(site, tmp_path / str(number)), site))
    programs("squeue", "".join(f"{number}|RUNNING|None\n" for number in range(100)))
    before = len(programs.notes())
    assert {each.state for each in job_statuses(jobs)} == {"running"}
    assert len(programs.notes()) == before + 1


@pytest.mark.parametrize("scheduler", PRINTED)
def test_a_forgotten_job_is_known_by_what_the_run_left(scheduler: str, programs: Any, tmp_path: Path) -> None:
    programs(SUBMITS[scheduler], PRINTED[scheduler])
    site = a_site(scheduler)
    job = submission.submit(a_job(site, tmp_path / "run"), site)
    programs(ASKS[scheduler], "", *FORGOTTEN[scheduler])
    assert job_status(job).state == "lost"
    ends: dict[Status, str] = {"success": "done", "target_not_reached": "done", "aborted": "failed"}
    for status, state in ends.items():
        RunFolder(tmp_path / "run").write_summary(Summary("cosmoflow", "t", "smoke", status=status))
        assert (job_status(job).state, job_status(job).source) == (state, "run folder")
    programs(ASKS[scheduler], "", 1, DOWN[scheduler][0])
    assert job_status(job).state == "unknown", "a summary may be of an earlier attempt"


def test_a_job_that_ended_is_described_by_its_run(programs: Any, tmp_path: Path) -> None:
    programs("sbatch", "17\n")
    site, folder = a_site(), RunFolder(tmp_path / "run")
    job = submission.submit(a_job(site, folder.path), site)
    programs("squeue", "17|FAILED|NonZeroExitCode\n")
    assert job_status(job) == JobStatus("failed", "NonZeroExitCode", "squeue")
    log = folder.path / "job-17.log"
    log.write_text("hpcbench: error: /data/x: no such folder\nsrun: error: n2: task 1: Terminated\n")
    assert job_status(job) == JobStatus("failed", "/data/x: no such folder", "squeue")
    folder.write_summary(Summary("cosmoflow", "t", "smoke", status="target_not_reached"))
    assert job_status(job) == JobStatus("done", "target missed", "squeue")
    folder.write_summary(Summary("cosmoflow", "t", "smoke", status="aborted", cause="diverged", reason="loss is nan"))
    assert job_status(job) == JobStatus("failed", "loss is nan", "squeue")
    programs("squeue", "17|NODE_FAIL|None\n")
    folder.summary.write_text("{")
    assert job_status(job) == JobStatus("failed", "", "squeue")


FOUND = {
    "slurm": {"squeue": "16|{mark}x|other\n17|{mark}|a project of the site\n"},
    "pbs": {"qselect": "16.server\n17.server\n",
            "qstat": '{{"Jobs": {{"16.server": {{}}, "17.server": {{"Variable_List": "A=1,HPCBENCH_MARK={mark}"}}}}}}'},
    "flux": {"flux": "17\n"}, "lsf": {"bjobs": "16|-\n17|{mark}\n"},
}  # fmt: skip
"""What is asked for jobs, and its answer where the job is there."""


@pytest.mark.parametrize("scheduler", FOUND)
def test_a_job_whose_answer_was_lost_is_found_by_its_mark(
    scheduler: str, programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(SUBMITS[scheduler], "", 1, LOST[scheduler][0])
    site, run = a_site(scheduler), tmp_path / "run"
    job = a_job(site, run)
    with pytest.raises(UnansweredError, match="did not say whether it took the job"):
        submission.submit(job, site)
    assert job.mark in (run / "job.sh").read_text() or scheduler == "local"
    with pytest.raises(InputError, match="exists and is not empty"):
        submission.submit(a_job(site, run), site)
    handle = read_job(run)
    assert (handle.job_id, handle.mark) == ("", job.mark)
    # Nobody can be asked: nothing is known, and nothing is given up however long ago it was.
    monkeypatch.setattr(submission, "SETTLED_S", 0)
    asked = next(iter(FOUND[scheduler]))
    programs(asked, "", 1, DOWN[scheduler][0])
    assert job_status(handle).state == "unknown"
    # The queue does not have it: not for certain at first, for certain when every message has timed out.
    programs(asked, "", *((255, "No job found") if scheduler == "lsf" else (0, "")))
    assert job_status(handle).state == "lost"
    monkeypatch.setattr(submission, "SETTLED_S", 300)
    assert job_status(handle).state == "unknown"
    # The queue has it.
    for name, answer in FOUND[scheduler].items():
        programs(name, answer.format(mark=job.mark))
    job_status(handle)
    assert read_job(run).job_id == {"flux": "17"}.get(scheduler, JOB_IDS[scheduler])


def test_a_job_whose_answer_was_lost_is_known_by_the_id_that_its_script_wrote(programs: Any, tmp_path: Path) -> None:
    programs("sbatch", "", 1, LOST["slurm"][0])
    site, run = a_site(), tmp_path / "run"
    with pytest.raises(UnansweredError):
        submission.submit(a_job(site, run), site)
    write_hold(run, Hold.here("17", 1, "slurm", "", 2, 0), 1)
    programs("squeue", "17|RUNNING|None\n")
    assert job_status(read_job(run)) == JobStatus("running", "", "squeue")


def test_a_folder_without_a_job(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no job.json; give the run folder of a job that was submitted"):
        read_job(tmp_path)
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(InputError, match="is damaged"):
        read_job(tmp_path)
