"""Jobs submitted to a real Slurm of two nodes: to the target, over the time limit, cancelled, and asking too much."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcbench.results.run_folder import RunFolder

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


def submit(slurm: Any, application: str, site: str, data: Path, run: Path, *more: object) -> Any:
    """``hpcbench submit`` on both nodes."""
    words = ["submit", application, "--site", site, "--nodes", "2", "--preset", "smoke", "--run-dir", run]
    return slurm.run(sys.executable, "-m", "hpcbench", *words, "--data.root", data / application, *more)


def state(slurm: Any, run: Path) -> str:
    """What ``hpcbench jobs`` says, without its headings."""
    done = slurm.run(sys.executable, "-m", "hpcbench", "jobs", run)
    assert done.returncode == 0, done.stderr
    return str(done.stdout.splitlines()[-1])


def ended(slurm: Any, run: Path, limit_s: float = 240) -> str:
    """The last line of ``hpcbench jobs`` once the job has ended."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = state(slurm, run)
        if "waiting" not in found and "running" not in found:
            return found
        time.sleep(1)
    raise AssertionError(f"{found}\n{log(run)}")


def wait_for(path: Path, run: Path) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + 240
    while not path.exists():
        assert time.monotonic() < deadline, log(run)
        time.sleep(0.2)


def log(run: Path) -> str:
    """What the job has printed."""
    return "".join(path.read_text() for path in sorted(run.glob("job-*.log")))


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites")
@pytest.mark.parametrize(("application", "target"), [("cosmoflow", "0.46"), ("deepcam", "0.65")])
def test_a_job_stages_by_exchange_and_trains_to_the_target(
    slurm: Any, datasets: Path, tmp_path: Path, application: str, target: str
) -> None:
    run = tmp_path / "runs" / "job"
    more = ["--staging.path", "exchange", "--train.target", target]
    done = submit(slurm, application, "two-nodes", datasets, run, *more)
    assert done.returncode == 0, done.stderr
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.nodes, summary.world_size) == ("success", 2, 2)
    staged = json.loads((run / "staging.json").read_text())
    assert staged["path"] == "exchange"
    assert [node["name"] for node in staged["nodes"]] == ["node1", "node2"]
    assert staged["totals"]["bytes_sent"] > 0
    assert "the job is as asked: 2 ranks on 2 node(s)" in log(run)
    left = [path for path in (tmp_path / "local").rglob("*") if path.is_file()]
    assert left == []


def attempt_trains(run: Path, number: int) -> None:
    """Wait until an attempt of the job has begun and trained into an epoch."""
    deadline = time.monotonic() + 100
    while f"attempt {number}," not in log(run):
        assert time.monotonic() < deadline, log(run)
        time.sleep(0.2)
    epochs = run / "epochs.csv"
    before = epochs.read_text().count("\n") if epochs.exists() else 0
    while not epochs.exists() or epochs.read_text().count("\n") <= before + 1:
        assert time.monotonic() < deadline, log(run)
        time.sleep(0.1)


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites")
@pytest.mark.parametrize(("application", "signal"), [("cosmoflow", "USR1"), ("deepcam", "TERM")])
def test_a_job_that_is_interrupted_twice_comes_to_its_end(
    slurm: Any, datasets: Path, tmp_path: Path, application: str, signal: str
) -> None:
    """Two nodes under MPI, staged, as documented: the scheduler's signals, its requeueing, and then all epochs."""
    run = tmp_path / "runs" / "job"
    epochs = {"cosmoflow": 60, "deepcam": 14}[application]
    more = ["--staging.path", "exchange", "--train.target", "null", "--train.max_epochs", epochs, "--warn-s", "30"]
    done = submit(slurm, application, "two-nodes", datasets, run, *more, "--train.baselines", "false")
    assert done.returncode == 0, done.stderr
    number = json.loads((run / "job.json").read_text())["job_id"]
    for attempt in (1, 2):
        attempt_trains(run, attempt)
        assert slurm.run("scancel", f"--signal={signal}", number).returncode == 0
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.resumed, summary.epochs, summary.world_size) == ("success", 2, epochs, 2), log(run)
    assert log(run).count(f"aborted: signal SIG{signal}") == 2
    assert log(run).count(f"the run was stopped by SIG{signal}; continued") == 2
    assert "attempt 4" not in log(run)
    assert (run / "job-id").read_text().strip() == number
    assert [path for path in (tmp_path / "local").rglob("*") if path.is_file()] == []


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites")
def test_a_job_over_its_time_limit_is_queued_again_by_slurm_s_own_warning(
    slurm: Any, datasets: Path, tmp_path: Path
) -> None:
    """Slurm looks at time limits twice a minute, so that this takes minutes."""
    run = tmp_path / "runs" / "job"
    more = ["--time", "00:02:00", "--warn-s", "60", "--train.target", "null", "--train.max_epochs", "1500"]
    done = submit(slurm, "cosmoflow", "two-nodes", datasets, run, *more, "--train.baselines", "false")
    assert done.returncode == 0, done.stderr
    assert " done" in ended(slurm, run, 1200), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.epochs) == ("success", 1500)
    assert summary.resumed >= 1


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites")
def test_a_job_that_is_cancelled(slurm: Any, datasets: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    more = ["--no-stage", "--train.max_epochs", "100000", "--train.target", "0.0001"]
    done = submit(slurm, "cosmoflow", "two-nodes", datasets, run, *more)
    assert done.returncode == 0, done.stderr
    wait_for(run / "epochs.csv", run)
    assert " running" in state(slurm, run)
    done = slurm.run(sys.executable, "-m", "hpcbench", "jobs", "--cancel", run)
    assert done.returncode == 0, done.stderr
    assert " cancelled" in ended(slurm, run, 60)
    time.sleep(10)  # longer than a job that is requeued waits
    assert " cancelled" in state(slurm, run)
    assert "attempt 2" not in log(run)


@pytest.mark.usefixtures("sites")
def test_a_job_that_asks_for_what_the_cluster_lacks(slurm: Any, datasets: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = submit(slurm, "cosmoflow", "two-nodes-no-mpi", datasets, run, "--queue", "gpu")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "sbatch refused the job: sbatch: error: invalid partition specified: gpu" in done.stderr
    assert not list(run.iterdir())
    # More nodes than there are could come one day, so that Slurm lets the job wait, and says why.
    done = submit(slurm, "cosmoflow", "two-nodes-no-mpi", datasets, run, "--nodes", "9")
    assert done.returncode == 0, done.stderr
    assert " waiting  Partition" in state(slurm, run)
    assert slurm.run(sys.executable, "-m", "hpcbench", "jobs", "--cancel", run).returncode == 0
    assert " cancelled" in ended(slurm, run, 60)


@pytest.mark.usefixtures("sites")
def test_a_job_without_node_local_storage_ends_at_once_with_the_reason(
    slurm: Any, datasets: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = submit(slurm, "cosmoflow", "two-nodes-no-mpi", datasets, run, "--local-path", "/proc/local")
    assert done.returncode == 0, done.stderr
    assert " failed" in ended(slurm, run, 120)
    for node in ("node1", "node2"):
        assert f"hpcbench: error: node {node}: /proc/local/hpcbench-" in log(run)
    assert not (run / "config.yaml").exists()
