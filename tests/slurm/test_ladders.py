"""Ladders of 1, 2 and 4 nodes as jobs of a real Slurm, in all three modes: submitted, waited for, and reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.results.run_folder import RunFolder
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import hpcbench, staged_files

pytestmark = [
    pytest.mark.slurm, pytest.mark.slow, pytest.mark.mpi, pytest.mark.usefixtures("mpiexec", "sites"),
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


APART = "instances that ran at the same time"


def is_right(folder: Path, mode: str, ranks_per_node: int, batches: dict[int, int]) -> pd.DataFrame:
    """The points of the table are those of the runs, and the page has them; returns the table, a row per size.

    Instances of seconds may begin too far apart on a busy machine, which makes their point no result.
    """
    results = pd.read_csv(folder / "results.csv").sort_values("nodes")
    assert list(results.nodes) == list(NODES)
    assert list(results.ranks) == [nodes * ranks_per_node for nodes in NODES]
    done = results[results.status == "done"]
    apart = results[results.status == "failed"]
    assert len(done) + len(apart) == len(NODES)
    assert (apart.instances > 1).all()
    assert apart.reason.str.contains(APART).all()
    assert list(done.global_batch_size) == [batches[nodes] for nodes in done.nodes]
    assert (done.samples_per_s > 0).all()
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
    """One, two and four trainings of a node each, side by side."""
    folder = tmp_path / "study"
    words = ["--instance-nodes", 1, "--ranks-per-node", 1, "--cores-per-rank", 1]
    submit_ladder(slurm, "throughput", "cosmoflow", datasets, folder, *words)
    results = is_right(folder, "throughput", 1, dict.fromkeys(NODES, 8))
    assert list(results.instances) == list(NODES)
    summaries = [RunFolder.open(path.parent).read_summary() for path in (folder / "runs").rglob("summary.json")]
    assert len(summaries) == 7
    assert {(each.nodes, each.world_size, each.steps) for each in summaries} == {(1, 1, STEPS)}
    assert staged_files(tmp_path / "local") == []
