"""The controller of Slurm is away, or silent, while commands ask it: one line each, nothing twice, nothing lost."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from hpcbench.results.run_folder import RunFolder
from tests.slurm.daemons import Slurm, wait_for
from tests.slurm.jobs import ENDLESS, attempt_trains, ended, hpcbench, job_id, log, state, submit, told

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.usefixtures("sites", "forked_processes")]


def queued(slurm: Slurm) -> list[str]:
    """Names of all jobs that Slurm has, ended ones of the last minutes left out."""
    return sorted(slurm.run("squeue", "--noheader", "--format=%j").stdout.split())


def start_controller(slurm: Slurm) -> None:
    """Start it again, and wait until it answers."""
    slurm.start("controller")
    wait_for(lambda: slurm.run("scontrol", "ping").returncode == 0, "the controller does not answer")


def later(run: Path) -> None:
    """Let the record of a submission say that it was made a quarter of an hour earlier."""
    record = json.loads((run / "job.json").read_text())
    hour, rest = record["submitted"][11:13], record["submitted"][13:]
    record["submitted"] = f"{record['submitted'][:11]}{int(hour):02d}{rest}".replace("+00:00", "+00:15")
    (run / "job.json").write_text(json.dumps(record))


def test_submitting_while_the_controller_is_stopped(repaired: Slurm, datasets: Path, tmp_path: Path) -> None:
    slurm, run = repaired, tmp_path / "run"
    slurm.stop("controller")
    done = submit(slurm, "cosmoflow", datasets, run, "--nodes", 9)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "hpcbench: error: sbatch did not say whether it took the job (" in done.stderr
    assert f"see: hpcbench jobs {run}" in done.stderr
    found = told(slurm, run)
    assert " unknown " in found
    assert f"{run}: submitted without an answer, and Slurm cannot be asked: squeue: " in found
    again = submit(slurm, "cosmoflow", datasets, run, "--nodes", 9)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1), again.stderr
    assert "exists and is not empty" in again.stderr
    start_controller(slurm)
    assert f"{run}: submitted without an answer; no queue has it, which is certain in " in told(slurm, run)
    assert queued(slurm) == []
    later(run)
    assert " lost " in state(slurm, run)
    assert f"{run}: never reached the queue" in told(slurm, run)
    done = submit(slurm, "cosmoflow", datasets, run, "--nodes", 9)
    assert done.returncode == 0, done.stderr
    assert len(queued(slurm)) == 1
    assert " waiting  Partition" in state(slurm, run)


def test_a_controller_that_is_silent_while_a_job_is_submitted(repaired: Slurm, datasets: Path, tmp_path: Path) -> None:
    """``sbatch`` gives up, and the controller takes the job all the same when it comes to it."""
    slurm, run = repaired, tmp_path / "run"
    controller = slurm.daemons["controller"].pid
    os.kill(controller, signal.SIGSTOP)
    try:
        done = submit(slurm, "cosmoflow", datasets, run, "--nodes", 9)
    finally:
        os.kill(controller, signal.SIGCONT)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "sbatch did not say whether it took the job (" in done.stderr
    wait_for(lambda: len(queued(slurm)) == 1, "the job never came to the queue")
    assert " waiting  Partition" in state(slurm, run)
    assert job_id(run) != "None"
    done = submit(slurm, "cosmoflow", datasets, run, "--nodes", 9)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert len(queued(slurm)) == 1


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "slow_steps")
def test_a_job_trains_on_while_the_controller_is_dead(repaired: Slurm, datasets: Path, tmp_path: Path) -> None:
    slurm, run = repaired, tmp_path / "runs" / "job"
    more = ["--staging.path", "exchange", "--train.max_epochs", 8, *ENDLESS]
    more += ["--ranks-per-node", 2, "--cores-per-rank", 1]
    done = submit(slurm, "cosmoflow", datasets, run, *more, site="four-nodes", nodes=2)
    assert done.returncode == 0, done.stderr
    attempt_trains(run, 1)
    slurm.kill_controller(job_id(run))
    found = told(slurm, run)
    assert " unknown " in found
    assert f"{run}: Slurm cannot be asked: squeue: " in found
    done = hpcbench(slurm, "jobs", "--cancel", run)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"scancel did not cancel job {job_id(run)}: " in done.stderr
    slurm.stop("controller")
    start_controller(slurm)
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.epochs, summary.resumed) == ("success", 8, 0), log(run)
    assert (summary.nodes, summary.world_size) == (2, 4)
    assert "attempt 2" not in log(run)


def test_a_study_while_the_controller_is_silent_or_stopped(repaired: Slurm, datasets: Path, tmp_path: Path) -> None:
    """Its jobs wait behind one that has all nodes, so that nothing but the queue is at work."""
    slurm, folder = repaired, tmp_path / "study"
    words = ["sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive", "--output=/dev/null"]
    assert slurm.run(*words, "--wrap=sleep 600").returncode == 0
    ladder = ["--site", "four-nodes", "--nodes", "1,2,4", "--repeats", 1, "--steps", 8, "--study-dir", folder]
    command = ["study", "strong", "cosmoflow", "--preset", "smoke", *ladder, "--data.root", datasets / "cosmoflow"]
    done = hpcbench(slurm, *command)
    assert done.returncode == 0, done.stderr
    before = queued(slurm)
    assert len(before) == 4
    runs = sorted((folder / "runs").iterdir())
    ids = [job_id(run) for run in runs]
    controller = slurm.daemons["controller"].pid
    os.kill(controller, signal.SIGSTOP)
    try:
        nothing_is_known(slurm, folder)
    finally:
        os.kill(controller, signal.SIGCONT)
    wait_for(lambda: queued(slurm) == before, "the queue is not as it was")
    slurm.stop("controller")
    nothing_is_known(slurm, folder)
    start_controller(slurm)
    assert queued(slurm) == before
    done = hpcbench(slurm, "study", "resume", folder)
    assert done.returncode == 0, done.stderr
    assert "3 waiting" in done.stdout, done.stdout
    assert queued(slurm) == before
    assert [job_id(run) for run in runs] == ids
    assert hpcbench(slurm, "study", "cancel", folder).returncode == 0
    wait_for(lambda: len(queued(slurm)) == 1, "the jobs of the study are not cancelled")


def nothing_is_known(slurm: Slurm, folder: Path) -> None:
    """The commands of a study say so of its three jobs, and end with exit code 0."""
    for command in ("status", "resume"):
        done = hpcbench(slurm, "study", command, folder)
        assert done.returncode == 0, done.stderr
        assert "3 unknown" in done.stdout, done.stdout
