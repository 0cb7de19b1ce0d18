"""A convergence study as jobs of a real Slurm that pack its runs, from its command to its report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.batch.job_record import read_job
from hpcbench.batch.packed_runs import packed_runs
from hpcbench.results.run_folder import RunFolder
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import ended, log

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.usefixtures("sites", "forked_processes")]


def study(slurm: Slurm, *words: object) -> str:
    """``hpcbench study``, with its output in error messages."""
    done = slurm.run(sys.executable, "-m", "hpcbench", "study", *words, timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def test_runs_packed_in_jobs_from_the_command_to_the_report(
    slurm: Slurm, sites: Path, datasets: Path, tmp_path: Path
) -> None:
    """Two runs side by side on a node."""
    profile = (sites / "two-nodes-no-mpi.yaml").read_text()
    (sites / "two-cores.yaml").write_text(profile.replace("cores: 1", f"cores: {min(2, os.cpu_count() or 1)}"))
    folder = tmp_path / "study"
    matrix = ["--batch-sizes", "2,4", "--optimizers", "sgd", "--seeds", 1, "--preset", "smoke"]
    settings = ["--data.root", datasets / "cosmoflow", "--train.local_batch_size", 2, "--train.max_epochs", 1]
    settings += ["--data.train_samples", 8, "--data.validation_samples", 4]
    job = [
        "--site",
        "two-cores",
        "--runs-per-job",
        4,
        "--cores-per-rank",
        1,
        "--time",
        "00:20:00",
        "--study-dir",
        folder,
    ]
    submitted = study(slurm, "convergence", "cosmoflow", *matrix, *settings, *job)
    assert "jobs/0001: job " in submitted
    assert "2 runs, 1 node, at most 0.333 node-hours" in submitted
    waited = study(slurm, "resume", folder, "--wait")
    assert "2 missed, 0 left" in study(slurm, "status", folder), waited
    (made,) = (folder / "jobs").iterdir()
    packed = packed_runs(made)
    assert packed is not None
    assert packed.side_by_side == min(2, os.cpu_count() or 1)
    cores = []
    for name in packed.words:
        run = folder / "runs" / name
        assert RunFolder.open(run).read_summary().status == "target_not_reached"
        environment = json.loads((run / "environment.json").read_text())
        assert environment["launcher"]["SLURM_JOB_ID"] == read_job(made).job_id
        cores.append(set(environment["cores_allowed"]))
    assert cores[0].isdisjoint(cores[1]) or packed.side_by_side == 1
    study(slurm, "report", folder)
    results = pd.read_csv(folder / "results.csv")
    assert results.status.tolist() == ["missed", "missed"]
    assert (folder / "study.html").exists()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores for the ranks of a run")
def test_resume_submits_the_next_round_of_a_search_whose_runs_have_two_ranks(
    slurm: Slurm, sites: Path, datasets: Path, tmp_path: Path
) -> None:
    profile = (sites / "two-nodes-no-mpi.yaml").read_text()
    (sites / "two-cores.yaml").write_text(profile.replace("cores: 1", "cores: 2"))
    folder = tmp_path / "study"
    words = ["--batch-sizes", 2, "--optimizers", "sgd", "--seeds", 1, "--lr-search=0.5,1", "--lr-search-widen=0"]
    words += ["--lr-search-seeds=1", "--preset", "smoke", "--site", "two-cores", "--runs-per-job", 2]
    words += ["--time", "00:20:00", "--parallel.spatial", 2, "--study-dir", folder]
    words += ["--data.root", datasets / "cosmoflow", "--train.local_batch_size", 2, "--train.max_epochs", 1]
    words += ["--train.target", 100, "--data.train_samples", 8, "--data.validation_samples", 4]
    assert "jobs/0001: job " in study(slurm, "convergence", "cosmoflow", *words)
    first = folder / "jobs" / "0001"
    assert " done" in ended(slurm, first), log(first)
    assert "jobs/0002: job " in study(slurm, "resume", folder)
    second = folder / "jobs" / "0002"
    assert " done" in ended(slurm, second), log(second)
    assert "3 reached, 0 left" in study(slurm, "status", folder)
    packed = [packed_runs(path) for path in (first, second)]
    assert [len(each.words) for each in packed if each is not None] == [2, 1]
    for run in (folder / "runs").iterdir():
        assert RunFolder.open(run).read_summary().world_size == 2
