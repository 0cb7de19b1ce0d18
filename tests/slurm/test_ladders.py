"""Ladders of 1, 2 and 4 nodes as jobs of a real Slurm, in all three modes: submitted, waited for, and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.batch.packed_runs import packed_runs
from hpcbench.results.attempts import Attempts
from hpcbench.results.run_folder import RunFolder
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import hpcbench, job_id, log, nodes_of, queue_state, rows, staged_files, wait_until
from tests.slurm.keeper import kill_all

pytestmark = [
    pytest.mark.slurm, pytest.mark.slow, pytest.mark.mpi,
    pytest.mark.usefixtures("mpiexec", "sites", "forked_processes"),
]  # fmt: skip

STEPS = 12
NODES = (1, 2, 4)
LOCAL_BATCH = {"cosmoflow": 8, "deepcam": 2}


def study(slurm: Slurm, *words: object) -> Any:
    """``hpcbench study``, with its output in error messages."""
    done = hpcbench(slurm, "study", *words, timeout_s=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def submit_ladder(slurm: Slurm, mode: str, application: str, data: Path, folder: Path, *more: object) -> str:
    """Submit it, wait for all jobs, and make the page; returns what the submission said."""
    ladder = ["--site", "four-nodes", "--nodes", "1,2,4", "--repeats", 1, "--steps", STEPS, "--study-dir", folder]
    settings = ["--data.root", data / application, "--staging.path", "exchange", "--data.validation_samples", 4]
    settings += ["--train.local_batch_size", LOCAL_BATCH[application]]
    submitted = study(slurm, mode, application, "--preset", "smoke", *ladder, *more, *settings)
    assert f"status: hpcbench study status {folder}" in submitted.stdout
    waited = study(slurm, "resume", folder, "--wait").stdout
    runs = len(list((folder / "runs").iterdir()))
    assert f"{runs} done" in study(slurm, "status", folder).stdout, waited
    study(slurm, "report", folder)
    return str(submitted.stdout)


def is_right(folder: Path, mode: str, ranks_per_node: int, batches: dict[int, int]) -> pd.DataFrame:
    """The points of the table are those of the runs, and the page has them; returns the table, a row per size.

    Some of several instances of seconds may begin too late on a busy machine, which prunes them.
    """
    results = pd.read_csv(folder / "results.csv").sort_values("nodes")
    assert list(results.nodes) == list(NODES)
    for nodes, ranks in zip(NODES, results.ranks, strict=True):
        most = nodes * ranks_per_node
        assert most / 2 < ranks <= most if mode == "throughput" else ranks == most
    assert set(results.status) == {"done"}
    assert list(results.global_batch_size) == [batches[nodes] for nodes in results.nodes]
    assert (results.samples_per_s > 0).all()
    page = (folder / "scaling.html").read_text()
    assert "four nodes on one machine" in page
    assert "simulated" not in page
    assert mode in page.lower()
    return results


@pytest.mark.parametrize(
    ("mode", "application", "ranks", "batches"),
    [("strong", "cosmoflow", 2, {1: 16, 2: 16, 4: 16}), ("weak", "deepcam", 1, {1: 2, 2: 4, 4: 8})],
)
def test_a_ladder_of_jobs(
    slurm: Slurm, datasets: Path, tmp_path: Path, mode: str, application: str, ranks: int, batches: dict[int, int]
) -> None:
    folder = tmp_path / "study"
    more = ["--ranks-per-node", ranks, "--cores-per-rank", 1]
    assert "3 jobs, at most 7 node-hours" in submit_ladder(slurm, mode, application, datasets, folder, *more)
    results = is_right(folder, mode, ranks, batches)
    for nodes, rate in zip(results.nodes, results.samples_per_s, strict=True):
        run = RunFolder.open(folder / "runs" / f"n{nodes:04d}-r1")
        summary, table = run.read_summary(), run.read_ranks()
        assert (summary.nodes, summary.world_size, summary.steps) == (nodes, nodes * ranks, STEPS)
        assert len(set(table.node)) == nodes
        assert (table.steps == STEPS - 5).all()
        assert (table.compute_s > 0).all()
        assert rate == pytest.approx(summary.warm_samples_per_s, rel=0.2)
        assert nodes * ranks == 1 or (table.communication_s > 0).all()
        assert json.loads(run.staging.read_text())["path"] == "exchange"
    assert staged_files(tmp_path / "local") == []


def test_a_ladder_of_instances(slurm: Slurm, datasets: Path, tmp_path: Path) -> None:
    """One, two and four trainings of a node each, as steps of one job, where nodes are shared out by memory, too."""
    folder = tmp_path / "study"
    words = ["--instance-nodes", 1, "--ranks-per-node", 1, "--cores-per-rank", 1]
    submitted = submit_ladder(slurm, "throughput", "cosmoflow", datasets, folder, *words)
    assert "3 jobs for 7 instances, at most 7 node-hours" in submitted
    assert sorted(path.name for path in (folder / "jobs").iterdir()) == ["0001", "0002", "0003"]
    for path in (folder / "jobs").iterdir():
        packed = packed_runs(path)
        assert packed is not None
        attempts = [Attempts.read(folder / "runs" / name).attempts for name in packed.words]
        assert [len(each) for each in attempts] == [1] * len(packed.words)
        last_start = max(each[0].started for each in attempts)
        assert last_start < min(each[0].ended for each in attempts), "no instance waited for another one's node"
    results = is_right(folder, "throughput", 1, dict.fromkeys(NODES, 8))
    assert list(results.instances) == list(results.ranks), "a rank each"
    summaries = [RunFolder.open(path.parent).read_summary() for path in (folder / "runs").rglob("summary.json")]
    assert len(summaries) == 7
    assert {(each.nodes, each.world_size, each.steps) for each in summaries} == {(1, 1, STEPS)}
    assert staged_files(tmp_path / "local") == []


@pytest.mark.usefixtures("slow_steps")
def test_instances_that_are_warned_continue_and_a_failed_one_has_its_repeat_made_again(
    slurm: Slurm, datasets: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "study"
    runs = [folder / "runs" / f"n0002-r1-i{number:03}" for number in (1, 2)]
    ladder = ["--site", "four-nodes", "--nodes", 2, "--instance-nodes", 1, "--ranks-per-node", 1]
    ladder += ["--cores-per-rank", 1, "--repeats", 1, "--steps", 120, "--study-dir", folder]
    settings = ["--data.root", datasets / "cosmoflow", "--data.validation_samples", 4, "--train.local_batch_size", 8]
    study(slurm, "throughput", "cosmoflow", "--preset", "smoke", *ladder, *settings)
    job = folder / "jobs" / "0001"
    wait_until(lambda: all(rows(run) for run in runs), job)
    slurm.run("scancel", "--signal=USR1", job_id(job))  # what --signal=USR1@SECONDS does: all steps, not the script
    wait_until(lambda: all(f"{run.name}: interrupted (signal SIGUSR1)" in log(job) for run in runs), job)
    wait_until(lambda: "attempt 2," in log(job), job)
    before = [rows(run) for run in runs]
    wait_until(lambda: all(rows(run) > had for run, had in zip(runs, before, strict=True)), job)
    kill_all(SLURM_JOB_ID=job_id(job), SLURMD_NODENAME=nodes_of(slurm, job_id(job))[1], SLURM_PROCID="0")
    wait_until(lambda: not queue_state(slurm, job_id(job)), job)
    assert f"{runs[1].name}: failed" in log(job)
    assert RunFolder.open(runs[0]).read_summary().steps == 120
    assert "1 done, 0 running, 0 waiting, 1 failed" in study(slurm, "status", folder).stdout
    assert staged_files(tmp_path / "local") == []
    study(slurm, "resume", folder, "--wait")
    assert "2 done" in study(slurm, "status", folder).stdout
    assert sorted(path.name for path in (folder / "runs").iterdir()) == [
        runs[0].name, f"{runs[0].name}.aside-1", runs[1].name, f"{runs[1].name}.failed-1",
    ]  # fmt: skip
    assert pd.read_csv(folder / "results.csv").ranks.tolist() == [2]
