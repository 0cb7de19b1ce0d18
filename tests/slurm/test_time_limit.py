"""Slurm warns a job of its time limit, twice: each time it stops in time and comes back, and then makes its last epoch.

Time limits are whole minutes, and the controller looks at them twice a minute. So the limit of a job that trains is
lowered, as an administrator may do; the test of full length meets limits that the job was submitted with.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from hpcbench.results.run_folder import RunFolder
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import attempt_trains, ended, job_id, log, rows, staged_files, submit, wait_until

pytestmark = [
    pytest.mark.slurm, pytest.mark.slow, pytest.mark.mpi,
    pytest.mark.usefixtures("mpiexec", "sites", "forked_processes", "slow_steps"),
]  # fmt: skip

WARN_S = 120
APPLICATIONS = ("cosmoflow", "deepcam")
STOPPED = "hpcbench: aborted: signal SIGUSR1"


def write_epochs(path: Path, epochs: int = 100_000) -> None:
    """The user's settings, which each attempt of the job reads: no target, and so many epochs."""
    part = path.with_suffix(".part")
    part.write_text(yaml.safe_dump({"train": {"target": None, "max_epochs": epochs}}))
    part.replace(path)


def set_limit(slurm: Slurm, number: str, minutes: int) -> None:
    """Change the time limit of a job."""
    done = slurm.run("scontrol", "update", f"JobId={number}", f"TimeLimit={minutes}")
    assert done.returncode == 0, done.stderr


def elapsed_s(slurm: Slurm, number: str) -> int:
    """Seconds since this attempt began, as Slurm counts them."""
    shown = slurm.run("squeue", "--noheader", "--format=%M", f"--jobs={number}").stdout.strip()
    return sum(int(part) * 60**place for place, part in enumerate(reversed(shown.split(":"))))


def is_whole(slurm: Slurm, run: Path, ranks: int, hits: int) -> None:
    """A run that was warned so often, and then made its last epoch, as its folder, its log and Slurm say."""
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.cause, summary.world_size) == ("success", "epochs", ranks), log(run)
    assert summary.resumed == hits
    assert log(run).count(STOPPED) == hits
    assert log(run).count("hpcbench: the run was stopped by SIGUSR1; continued") == hits
    assert f"attempt {hits + 1}," in log(run)
    assert f"attempt {hits + 2}," not in log(run)
    assert "DUE TO TIME LIMIT" not in log(run)


def warned_twice(slurm: Slurm, datasets: Path, folder: Path, application: str, nodes: int) -> Path:
    """A job with two ranks a node that Slurm warns twice before it makes its last epoch; returns its run folder."""
    run, settings = folder / "runs" / application, folder / f"{application}.yaml"
    write_epochs(settings)
    more = ["--staging.path", "exchange", "--config", settings, "--train.baselines", "false"]
    more += ["--time", "01:00:00", "--warn-s", WARN_S, "--ranks-per-node", 2, "--cores-per-rank", 1]
    done = submit(slurm, application, datasets, run, *more, site="four-nodes", nodes=nodes)
    assert done.returncode == 0, done.stderr
    number = job_id(run)
    for hit in (1, 2):
        attempt_trains(run, hit)
        # Slurm warns up to 30 s early, and so at its next look; the job has at least 75 s to stop.
        set_limit(slurm, number, math.ceil((elapsed_s(slurm, number) + 75) / 60))
        wait_until(lambda hit=hit: log(run).count(STOPPED) == hit, run)  # type: ignore[misc]
        set_limit(slurm, number, 60)
        if hit == 2:
            write_epochs(settings, rows(run) + 2)
    is_whole(slurm, run, nodes * 2, 2)
    return run


def test_jobs_that_slurm_warns_twice_reach_their_last_epochs(slurm: Slurm, datasets: Path, tmp_path: Path) -> None:
    """Both applications at once, on two nodes each: most of the time they wait for Slurm's next look."""
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(warned_twice, slurm, datasets, tmp_path, application, 2) for application in APPLICATIONS]
    runs = [job.result() for job in jobs]
    assert [RunFolder.open(run).read_summary().application for run in runs] == list(APPLICATIONS)
    assert staged_files(tmp_path / "local") == []


def test_a_job_that_slurm_ends_at_its_time_limit_comes_back(slurm: Slurm, datasets: Path, tmp_path: Path) -> None:
    """As when a step takes longer than the warning time: the ranks and the script get SIGTERM at the limit."""
    run, settings = tmp_path / "runs" / "job", tmp_path / "settings.yaml"
    write_epochs(settings)
    more = ["--staging.path", "exchange", "--config", settings, "--train.baselines", "false"]
    more += ["--time", "01:00:00", "--warn-s", 60, "--ranks-per-node", 2, "--cores-per-rank", 1]
    done = submit(slurm, "cosmoflow", datasets, run, *more, site="four-nodes", nodes=2)
    assert done.returncode == 0, done.stderr
    attempt_trains(run, 1)
    wait_until(lambda: elapsed_s(slurm, job_id(run)) > 60, run)
    write_epochs(settings, rows(run) + 2)
    set_limit(slurm, job_id(run), 1)
    wait_until(lambda: "attempt 2," in log(run), run)
    set_limit(slurm, job_id(run), 60)
    assert "DUE TO TIME LIMIT" in log(run)
    assert " done" in ended(slurm, run), log(run)
    assert log(run).count("hpcbench: the run reached its time limit and was ") == 1, log(run)
    assert "was cancelled" not in log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.cause, summary.resumed) == ("success", "epochs", 1), log(run)
    assert (summary.nodes, summary.world_size) == (2, 4)


@pytest.mark.long
def test_a_job_of_four_nodes_that_slurm_warns_twice_reaches_its_last_epoch(
    slurm: Slurm, datasets: Path, tmp_path: Path
) -> None:
    warned_twice(slurm, datasets, tmp_path, "deepcam", 4)
    assert staged_files(tmp_path / "local") == []


@pytest.mark.long
def test_a_job_over_the_limit_that_it_was_submitted_with(slurm: Slurm, datasets: Path, tmp_path: Path) -> None:
    """Two nodes with two ranks each; Slurm's warning comes one to two minutes before the end of three."""
    run, settings = tmp_path / "runs" / "job", tmp_path / "settings.yaml"
    write_epochs(settings)
    more = ["--staging.path", "exchange", "--config", settings, "--train.baselines", "false"]
    more += ["--time", "00:03:00", "--warn-s", 60, "--ranks-per-node", 2, "--cores-per-rank", 1]
    done = submit(slurm, "cosmoflow", datasets, run, *more, site="four-nodes", nodes=2)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: log(run).count(STOPPED) == 2, run, 600)
    write_epochs(settings, rows(run) + 2)
    is_whole(slurm, run, 4, 2)
    assert staged_files(tmp_path / "local") == []
