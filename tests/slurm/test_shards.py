"""Shards on two nodes of a real Slurm, re-shuffled between epochs, train as on two simulated nodes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from hpcbench.results.run_folder import RunFolder
from staging.ledger.manifest import load_records
from tests.slurm.daemons import Slurm
from tests.slurm.jobs import ended, log, staged_files, submit
from tests.slurm.test_training import FIXED, cosmos, words_of

__all__ = ["cosmos"]
pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]

SHARDS = ["--staging.placement", "shard", "--staging.reshuffle", "true", "--train.local_batch_size", "4"]


def homes(staged: Path) -> list[set[str]]:
    """The training files of each node, by the order of its name."""
    return [{name for name in load_records(node).position if "train/" in name} for node in sorted(staged.iterdir())]


@pytest.fixture(scope="module")
def pretended(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on two simulated nodes, and of what they staged."""
    folder = tmp_path_factory.mktemp("pretended")
    words = [*words_of(cosmos, folder / "run"), *SHARDS, "--staging.destination", str(folder / "local" / "{node}")]
    done = subprocess.run(
        [*words, "--parallel.devices", "2", "--parallel.simulated_nodes", "2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def is_equal(run: Path, pretended: Path) -> None:
    """A run on two nodes had the losses of the pretended one, and exchanged samples as it did."""
    steps = [RunFolder.open(each).read_steps()["loss"] for each in (run, pretended / "run")]
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-12)
    staged = json.loads((run / "staging.json").read_text())
    assert staged["reshuffles"] == 1
    assert staged["reshuffle_bytes"] > 0
    assert RunFolder.open(run).read_summary().nodes == 2


def test_two_nodes_train_on_shards_as_simulated_ones_do(
    slurm: Slurm, cosmos: Path, pretended: Path, tmp_path: Path
) -> None:
    words = [*words_of(cosmos, tmp_path / "run"), *SHARDS]
    words += ["--staging.destination", str(tmp_path / "local" / "{node}")]
    done = slurm.run("srun", "--mpi=none", "-N2", "-n2", *words)
    assert done.returncode == 0, done.stderr
    is_equal(tmp_path / "run", pretended)
    one, two = homes(tmp_path / "local")
    assert homes(pretended / "local") == [one, two]
    assert one | two == {f"train/{path.name}" for path in (cosmos / "train").iterdir()}
    assert not one & two


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec", "sites")
def test_a_submitted_job_trains_on_shards_as_simulated_nodes_do(
    slurm: Slurm, cosmos: Path, pretended: Path, tmp_path: Path
) -> None:
    """Its script gives the node-local folder, and removes what was staged there."""
    run = tmp_path / "runs" / "job"
    done = submit(slurm, "cosmoflow", cosmos.parent, run, *SHARDS, *FIXED)
    assert done.returncode == 0, done.stderr
    assert " done" in ended(slurm, run), log(run)
    is_equal(run, pretended)
    assert RunFolder.open(run).read_summary().world_size == 2
    staged = json.loads((run / "staging.json").read_text())
    assert (staged["placement"], [node["name"] for node in staged["nodes"]]) == ("shard", ["node1", "node2"])
    assert staged_files(tmp_path / "local") == []
