"""A job that brings its Python environment: its ranks run from the node's own copy, which is gone in the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.results.run_folder import RunFolder
from tests.environments import make_environment
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import ended, log, staged_files

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.mpi, pytest.mark.usefixtures("mpiexec", "sites")]


def test_the_ranks_of_a_job_run_from_a_copy_of_the_environment(
    slurm: Slurm, datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(slurm.environ, "PYTHONPATH", raising=False)  # it is searched before an environment
    python = make_environment(tmp_path / "shared" / "venv") / "bin" / "python"
    run, local = tmp_path / "runs" / "job", tmp_path / "local" / "node"
    words = ["submit", "cosmoflow", "--site", "four-nodes", "--nodes", 1, "--ranks-per-node", 2, "--cores-per-rank", 1]
    words += ["--preset", "smoke", "--run-dir", run, "--data.root", datasets / "cosmoflow", "--train.target", "1.0"]
    done = slurm.run(python, "-P", "-m", "hpcbench", *words, "--bring-environment", "--local-path", local)
    assert done.returncode == 0, done.stderr
    assert " done" in ended(slurm, run), log(run)
    assert RunFolder.open(run).read_summary().world_size == 2
    program = json.loads((run / "environment.json").read_text())["command"][0]
    assert Path(program).is_relative_to(local), program
    assert f"run {local}/" in log(run)
    assert staged_files(tmp_path / "local") == []
