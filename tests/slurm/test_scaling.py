"""Ladders of a scaling study as jobs of a real Slurm: strong and weak, on one node and on two."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.results.run_folder import RunFolder

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.mpi, pytest.mark.usefixtures("mpiexec", "sites")]

STEPS = 16


def study(slurm: Any, *words: object) -> Any:
    """``hpcbench study``, with its output in error messages."""
    done = slurm.run(sys.executable, "-m", "hpcbench", "study", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("mode", "application", "batches"), [("strong", "cosmoflow", {1: 4, 2: 4}), ("weak", "deepcam", {1: 2, 2: 4})]
)
def test_a_ladder_of_jobs(
    slurm: Any, datasets: Path, tmp_path: Path, mode: str, application: str, batches: dict[int, int]
) -> None:
    folder, local = tmp_path / "study", {"cosmoflow": 4, "deepcam": 2}[application]
    ladder = ["--site", "two-nodes", "--nodes", "1,2", "--repeats", 1, "--steps", STEPS, "--study-dir", folder]
    settings = ["--data.root", datasets / application, "--staging.path", "exchange"]
    settings += ["--train.local_batch_size", local, "--data.validation_samples", 4]
    submitted = study(slurm, mode, application, "--preset", "smoke", *ladder, *settings)
    assert "2 jobs, at most 3 node-hours" in submitted.stdout
    assert "status: hpcbench study status" in submitted.stdout
    waited = study(slurm, "resume", folder, "--wait").stdout
    assert "2 done" in study(slurm, "status", folder).stdout, waited
    for nodes, batch in batches.items():
        run = RunFolder.open(folder / "runs" / f"n{nodes:04d}-r1")
        summary, ranks = run.read_summary(), run.read_ranks()
        assert (summary.nodes, summary.world_size, summary.global_batch_size) == (nodes, nodes, batch)
        assert summary.steps == STEPS
        assert list(ranks.node) == ["node1", "node2"][:nodes] or nodes == 1
        assert (ranks.steps == STEPS - 5).all()
        assert (ranks.compute_s > 0).all()
        if nodes == 2:
            assert (ranks.communication_s > 0).all()
            assert json.loads(run.staging.read_text())["path"] == "exchange"
    study(slurm, "report", folder)
    results = pd.read_csv(folder / "results.csv")
    assert sorted(results.nodes) == [1, 2]
    assert (results.samples_per_s > 0).all()
    page = (folder / "scaling.html").read_text()
    assert "two nodes on one machine" in page
    assert "simulated" not in page
