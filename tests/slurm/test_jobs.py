"""Jobs submitted to a real Slurm of two nodes: to the target, over the time limit, cancelled, and asking too much."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcbench.results.run_folder import RunFolder

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

PACED = Path(__file__).parent / "programs" / "paced_training.py"


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


@pytest.mark.usefixtures("sites")
@pytest.mark.parametrize(
    ("limit", "pace_s", "warned"),
    [("00:20:00", 0.3, "by us"), pytest.param("00:02:00", 1.0, "by Slurm", marks=pytest.mark.long)],
)
def test_a_job_over_its_time_limit_is_queued_again_and_ends_at_the_target(
    slurm: Any, datasets: Path, tmp_path: Path, limit: str, pace_s: float, warned: str
) -> None:
    """Slurm looks at time limits twice a minute, so that its own warning takes minutes."""
    run = tmp_path / "run"
    more = ["--time", limit, "--warn-s", "30", "--env", f"PACE_S={pace_s}", "--no-stage", "--seed", "1"]
    script = submit(slurm, "cosmoflow", "two-nodes-no-mpi", datasets, run, *more, "--dry-run").stdout
    own = f"hpcbench=({sys.executable} -m hpcbench)"
    assert own in script
    run.mkdir()
    (run / "job.sh").write_text(script.replace(own, f"hpcbench=({sys.executable} {PACED})"))
    done = subprocess.run(
        ["sbatch", "--parsable", "job.sh"], cwd=run, env=slurm.environ, capture_output=True, text=True, check=True
    )
    record = {"job_id": done.stdout.strip(), "scheduler": "slurm", "site": "two-nodes-no-mpi"}
    (run / "job.json").write_text(json.dumps(record))
    if warned == "by us":
        wait_for(run / "epochs.csv", run)
        assert slurm.run("scancel", "--signal=USR1", record["job_id"]).returncode == 0
    found = ended(slurm, run, 1200)
    assert " done" in found, log(run)
    summary = RunFolder.open(run).read_summary()
    assert summary.status == "success"
    assert summary.resumed >= 1
    assert "attempt 2" in log(run)
    assert log(run).count("aborted: signal SIGUSR1") >= 1


@pytest.mark.usefixtures("sites")
def test_a_job_that_is_cancelled(slurm: Any, datasets: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    more = ["--no-stage", "--train.max_epochs", "100000", "--train.target", "0.0001"]
    done = submit(slurm, "cosmoflow", "two-nodes-no-mpi", datasets, run, *more)
    assert done.returncode == 0, done.stderr
    wait_for(run / "epochs.csv", run)
    assert " running" in state(slurm, run)
    done = slurm.run(sys.executable, "-m", "hpcbench", "jobs", "--cancel", run)
    assert done.returncode == 0, done.stderr
    assert " cancelled" in ended(slurm, run, 60)


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
