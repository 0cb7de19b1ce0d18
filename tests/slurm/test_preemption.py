"""Another job takes the nodes of ours, with and without a grace time: it is queued again, and reaches its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.results.run_folder import RunFolder
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import ENDLESS, attempt_trains, ended, log, queue_state, staged_files, submit, wait_until

pytestmark = [
    pytest.mark.slurm, pytest.mark.slow, pytest.mark.mpi,
    pytest.mark.usefixtures("mpiexec", "sites", "forked_processes", "slow_steps"),
]  # fmt: skip


def urgent_job(slurm: Slurm, out: Path) -> str:
    """Submit a job that takes all nodes for a moment."""
    words = ["sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive", f"--output={out}"]
    done = slurm.run(*words, "--wrap=date; sleep 2")
    assert done.returncode == 0, done.stderr
    return str(done.stdout.strip())


@pytest.mark.parametrize(
    ("application", "partition", "epochs", "nodes", "ranks"),
    [("cosmoflow", "grace", 5, 2, 2), ("deepcam", "no-grace", 3, 2, 2)],
)
def test_a_job_that_is_preempted_comes_back(
    slurm: Slurm, datasets: Path, tmp_path: Path, application: str, partition: str, epochs: int, nodes: int, ranks: int
) -> None:
    run = tmp_path / "runs" / "job"
    more = ["--staging.path", "exchange", "--train.max_epochs", epochs, "--ranks-per-node", ranks, *ENDLESS]
    done = submit(
        slurm, application, datasets, run, *more, "--queue", partition, "--cores-per-rank", 1,
        site="four-nodes", nodes=nodes,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    attempt_trains(run, 1)
    other = urgent_job(slurm, tmp_path / "urgent.log")
    wait_until(lambda: not queue_state(slurm, other), run)
    assert (tmp_path / "urgent.log").read_text()
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.epochs, summary.world_size) == ("success", epochs, nodes * ranks), log(run)
    assert summary.resumed == 1, log(run)
    assert "attempt 3" not in log(run)
    # Without a grace time the script has 30 s to say what it found, which a busy machine may need for the ranks alone.
    words, least = {
        "grace": ("hpcbench: the run was preempted; continued", 1),
        "no-grace": ("hpcbench: Slurm has queued the job again; its next attempt continues the run", 0),
    }[partition]
    assert least <= log(run).count(words) <= 1, log(run)
    assert "was cancelled" not in log(run)
    assert staged_files(tmp_path / "local") == []
