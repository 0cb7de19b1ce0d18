"""Shards on two nodes of a real Slurm, re-shuffled between epochs, train as on two simulated nodes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcbench.results.run_folder import RunFolder
from staging.ledger.manifest import load_records
from tests.slurm.test_training import cosmos, words_of

__all__ = ["cosmos"]
pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.usefixtures("forked_processes")]

SHARDS = ["--staging.placement", "shard", "--staging.reshuffle", "true", "--train.local_batch_size", "4"]


def homes(staged: Path) -> list[set[str]]:
    """The training files of each node, by the order of its name."""
    return [{name for name in load_records(node).position if "train/" in name} for node in sorted(staged.iterdir())]


def test_two_nodes_train_on_shards_as_simulated_ones_do(slurm: Any, cosmos: Path, tmp_path: Path) -> None:
    real, pretended = tmp_path / "real", tmp_path / "pretended"
    words = [*words_of(cosmos, real / "run"), *SHARDS, "--staging.destination", str(real / "local" / "{node}")]
    done = slurm.run("srun", "--mpi=none", "-N2", "-n2", *words)
    assert done.returncode == 0, done.stderr
    words = [
        *words_of(cosmos, pretended / "run"),
        *SHARDS,
        "--staging.destination",
        str(pretended / "local" / "{node}"),
    ]
    simulated = subprocess.run(
        [*words, "--parallel.devices", "2", "--parallel.simulated_nodes", "2"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert simulated.returncode == 0, simulated.stderr
    steps = [RunFolder.open(folder / "run").read_steps()["loss"] for folder in (real, pretended)]
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-12)
    one, two = homes(real / "local")
    assert homes(pretended / "local") == [one, two]
    assert one | two == {f"train/{path.name}" for path in (cosmos / "train").iterdir()}
    assert not one & two
    staged = json.loads((real / "run" / "staging.json").read_text())
    assert staged["reshuffles"] == 1
    assert staged["reshuffle_bytes"] > 0
    assert RunFolder.open(real / "run").read_summary().nodes == 2
