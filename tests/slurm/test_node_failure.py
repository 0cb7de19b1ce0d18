"""A node dies under a job of two nodes: Slurm queues the job again, and it goes on from its checkpoint on others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.results.run_folder import RunFolder
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import ENDLESS, attempt_trains, ended, job_id, log, nodes_of, staged_files, submit, wait_until

pytestmark = [
    pytest.mark.slurm, pytest.mark.slow, pytest.mark.mpi,
    pytest.mark.usefixtures("mpiexec", "sites", "forked_processes", "slow_steps"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("which", "application", "epochs"),
    [("first", "cosmoflow", 5), ("first", "deepcam", 8), pytest.param("last", "cosmoflow", 5, marks=pytest.mark.long)],
)
def test_a_job_whose_node_dies_goes_on_on_others(
    repaired: Slurm, datasets: Path, tmp_path: Path, which: str, application: str, epochs: int
) -> None:
    """The first node has the job's script; the last one only ranks."""
    slurm, run = repaired, tmp_path / "runs" / "job"
    more = ["--staging.path", "exchange", "--train.max_epochs", epochs, *ENDLESS]
    more += ["--ranks-per-node", 2, "--cores-per-rank", 1]
    done = submit(slurm, application, datasets, run, *more, site="four-nodes", nodes=2)
    assert done.returncode == 0, done.stderr
    attempt_trains(run, 1)
    wait_until(lambda: any((run / "checkpoints").glob("*.json")), run)
    number = job_id(run)
    before = nodes_of(slurm, number)
    victim = before[0 if which == "first" else -1]
    slurm.kill_node(victim)
    wait_until(lambda: "attempt 2," in log(run), run)
    after = nodes_of(slurm, number)
    assert len(after) == 2
    assert victim not in after
    assert " done" in ended(slurm, run), log(run)
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.epochs, summary.world_size) == ("success", epochs, 4), log(run)
    # Slurm may begin the job's first step again while a node is still ending the step of that number of the attempt
    # before, and then kills both: that takes a third attempt.
    assert 1 <= summary.resumed <= 1 + ("attempt 3," in log(run)), log(run)
    assert "attempt 4," not in log(run)
    # What was staged stays where the second attempt did not come to, and on the node that died above all.
    local = tmp_path / "local"
    left = {path.relative_to(local).parts[0] for path in staged_files(local)}
    assert victim in left
    assert left <= set(before) - set(after)
    # A script on a node that lives has 30 s to say it, which a busy machine may need for its ranks alone.
    assert log(run).count("hpcbench: Slurm has queued the job again") <= (which == "last"), log(run)
    assert "was cancelled" not in log(run)
