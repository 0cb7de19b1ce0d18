"""Jobs submitted to a real Slurm of two nodes: to the target, interrupted, cancelled, and asking too much."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.holds import read_holds
from hpcbench.results.run_folder import RunFolder
from tests.slurm.jobs import (
    ENDLESS,
    attempt_trains,
    ended,
    hpcbench,
    job_id,
    log,
    staged_files,
    state,
    submit,
    told,
    wait_until,
)

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites")
@pytest.mark.parametrize(("application", "target"), [("cosmoflow", "0.46"), ("deepcam", "0.65")])
def test_a_job_stages_by_exchange_and_trains_to_the_target(
    slurm: Any, datasets: Path, tmp_path: Path, application: str, target: str
) -> None:
    run = tmp_path / "runs" / "job"
    more = ["--staging.path", "exchange", "--train.target", target]
    done = submit(slurm, application, datasets, run, *more)
    assert done.returncode == 0, done.stderr
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.nodes, summary.world_size) == ("success", 2, 2)
    staged = json.loads((run / "staging.json").read_text())
    assert staged["path"] == "exchange"
    assert [node["name"] for node in staged["nodes"]] == ["node1", "node2"]
    assert staged["totals"]["bytes_sent"] > 0
    assert "the job is as asked: 2 ranks on 2 nodes" in log(run)
    assert staged_files(tmp_path / "local") == []


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites", "slow_steps")
def test_a_job_that_is_signalled_twice_comes_to_its_end(slurm: Any, datasets: Path, tmp_path: Path) -> None:
    """As documented, staged under MPI; test_time_limit.py waits for signals of Slurm's own."""
    run = tmp_path / "runs" / "job"
    epochs = 6
    more = ["--staging.path", "exchange", "--train.target", "null", "--train.max_epochs", epochs, "--warn-s", "30"]
    done = submit(slurm, "deepcam", datasets, run, *more, "--train.baselines", "false")
    assert done.returncode == 0, done.stderr
    number = job_id(run)
    for attempt in (1, 2):
        attempt_trains(run, attempt)
        assert slurm.run("scancel", "--signal=USR1", number).returncode == 0
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.resumed, summary.epochs, summary.world_size) == ("success", 2, epochs, 2), log(run)
    assert log(run).count("aborted: signal SIGUSR1") == 2
    assert log(run).count("the run was stopped by SIGUSR1; continued") == 2
    assert "attempt 4" not in log(run)
    assert [(hold.job_id, hold.attempt) for hold in read_holds(run)] == [(number, 1), (number, 2), (number, 3)]
    assert staged_files(tmp_path / "local") == []


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites", "slow_steps")
def test_a_job_that_is_cancelled(slurm: Any, datasets: Path, tmp_path: Path) -> None:
    """Two ranks on each of two nodes, staged: it ends and does not come back; Slurm lets it remove nothing."""
    run = tmp_path / "run"
    more = ["--staging.path", "exchange", "--train.max_epochs", "100000", *ENDLESS]
    more += ["--ranks-per-node", 2, "--cores-per-rank", 1]
    done = submit(slurm, "cosmoflow", datasets, run, *more, site="four-nodes")
    assert done.returncode == 0, done.stderr
    wait_until((run / "epochs.csv").exists, run)
    assert " running" in state(slurm, run)
    assert staged_files(tmp_path / "local")
    done = hpcbench(slurm, "jobs", "--cancel", run)
    assert done.returncode == 0, done.stderr
    assert " cancelled" in ended(slurm, run, 60)
    time.sleep(10)  # longer than a job that is requeued waits
    assert " cancelled" in state(slurm, run)
    assert "hpcbench: the run was cancelled; not continued" in log(run)
    assert "attempt 2" not in log(run)


@pytest.mark.usefixtures("sites")
def test_a_job_that_asks_for_what_the_cluster_lacks(slurm: Any, datasets: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = submit(slurm, "cosmoflow", datasets, run, "--queue", "gpu", site="two-nodes-no-mpi")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "sbatch refused the job: sbatch: error: invalid partition specified: gpu" in done.stderr
    assert not run.exists()
    # More nodes than there are could come one day, so that Slurm lets the job wait, and says why.
    done = submit(slurm, "cosmoflow", datasets, run, site="two-nodes-no-mpi", nodes=9)
    assert done.returncode == 0, done.stderr
    assert " waiting  Partition" in state(slurm, run)
    assert hpcbench(slurm, "jobs", "--cancel", run).returncode == 0
    assert " cancelled" in ended(slurm, run, 60)


@pytest.mark.usefixtures("sites")
def test_a_job_without_node_local_storage_ends_at_once_with_the_reason(
    slurm: Any, datasets: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = submit(slurm, "cosmoflow", datasets, run, "--local-path", "/proc/local", site="two-nodes-no-mpi")
    assert done.returncode == 0, done.stderr
    assert " failed" in ended(slurm, run, 120)
    for node in ("node1", "node2"):
        assert f"hpcbench: error: node {node}: /proc/local/hpcbench-" in log(run)
    assert ": /proc/local/hpcbench-" in told(slurm, run)
    assert not (run / "config.yaml").exists()
