"""Training on two nodes of a real Slurm equals training in one process, whatever starts the ranks."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from tests.staging.processes import PROGRAMS

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

FIXED = ["--parallel.threads", "1", "--train.baselines", "false", "--train.page", "false", "--seed", "5",
         "--train.precision", "64-true", "--train.max_epochs", "2", "--train.target", "null"]  # fmt: skip


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 training and 10 validation samples of 16^3 x 4."""
    root = tmp_path_factory.mktemp("data") / "cosmoflow"
    words = ["data", "simulate", "cosmoflow", "--preset", "smoke", "--out", str(root), "--processes", "1"]
    assert main([*words, "--simulate.train_samples", "24", "--simulate.validation_samples", "10"]) == 0
    return root


@pytest.fixture(scope="module")
def one_process(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of one process with a global batch of 8."""
    folder = tmp_path_factory.mktemp("one") / "run"
    assert main([*words_of(cosmos, folder)[3:], "--train.local_batch_size", "8"]) == 0
    return folder


def words_of(data: Path, folder: Path) -> list[str]:
    """The command of a run."""
    words = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(data), "--run-dir", str(folder)]
    return [sys.executable, "-m", "hpcbench", *words, *FIXED]


def assert_equal_runs(folder: Path, one_process: Path) -> None:
    """Equal losses of every step and equal metrics, on two nodes with one rank each."""
    both = [RunFolder.open(path) for path in (folder, one_process)]
    np.testing.assert_allclose(both[0].read_steps()["loss"], both[1].read_steps()["loss"], rtol=1e-12)
    summary = both[0].read_summary()
    assert summary.metrics == pytest.approx(both[1].read_summary().metrics, rel=1e-12)
    assert (summary.world_size, summary.nodes, summary.ranks_per_node) == (2, 2, 1)
    log = folder.joinpath("mllog.txt").read_text().splitlines()
    events = [json.loads(line.removeprefix(":::MLLOG ")) for line in log if line.startswith(":::MLLOG ")]
    assert {event["key"]: event["value"] for event in events}["number_of_ranks"] == 2
    assert {event["key"]: event["value"] for event in events}["number_of_nodes"] == 2


@pytest.mark.parametrize(
    ("plugin", "source"),
    [("none", "Slurm"), pytest.param("pmi2", "PMI", marks=pytest.mark.mpi)],
)
def test_srun(
    plugin: str, source: str, slurm: Any, cosmos: Path, one_process: Path, tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    if plugin != "none":
        request.getfixturevalue("mpiexec")
    words = [*words_of(cosmos, tmp_path / "run"), "--train.local_batch_size", "4"]
    done = slurm.run("srun", f"--mpi={plugin}", "-N2", "-n2", *words)
    assert done.returncode == 0, done.stderr
    assert_equal_runs(tmp_path / "run", one_process)
    record = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert (record["ranks"], record["launched_by"]) == (2, source)


ANOTHER_SERVICE = """
import os, socket, sys
from hpcbench.cli.main import main
from hpcbench.parallel.rendezvous import slurm_ports
if os.environ["SLURM_PROCID"] == "0":
    silent = socket.create_server(("", slurm_ports(os.environ)[0]))
sys.exit(main(sys.argv[1:]))
"""


def test_srun_where_another_service_has_the_port_of_the_step(
    slurm: Any, cosmos: Path, one_process: Path, tmp_path: Path
) -> None:
    """It accepts connections and says nothing; without MPI the ranks then meet at the next port."""
    words = [sys.executable, "-c", ANOTHER_SERVICE, *words_of(cosmos, tmp_path / "run")[3:]]
    done = slurm.run("srun", "--mpi=none", "-N2", "-n2", *words, "--train.local_batch_size", "4")
    assert done.returncode == 0, done.stderr
    assert_equal_runs(tmp_path / "run", one_process)


@pytest.mark.mpi
@pytest.mark.usefixtures("mpiexec")
def test_a_rank_that_dies_while_the_others_are_in_finalize_ends_them(slurm: Any, cosmos: Path, tmp_path: Path) -> None:
    """srun without ``--kill-on-bad-exit`` ends nobody for it; the run was complete, and stays so."""
    words = [*words_of(cosmos, tmp_path / "run")[1:], "--train.local_batch_size", "4"]
    killed = [sys.executable, PROGRAMS / "killed_at_finalize.py", 1]
    done = slurm.run("srun", "--mpi=pmi2", "-N2", "-n2", *killed, *words, timeout_s=120)
    assert done.returncode == 137
    assert "hpcbench: aborted: rank 1: the process died without a word" in done.stderr
    assert RunFolder.open(tmp_path / "run").read_summary().status == "success"


@pytest.mark.mpi
def test_mpiexec_in_a_batch_script(slurm: Any, cosmos: Path, one_process: Path, tmp_path: Path, mpiexec: str) -> None:
    """Every child of mpiexec inherits the Slurm variables of its node's first task; the ranks are told apart."""
    script, output = tmp_path / "job.sh", tmp_path / "job.out"
    words = [*words_of(cosmos, tmp_path / "run"), "--train.local_batch_size", "4"]
    script.write_text("#!/bin/sh\nexec " + " ".join([mpiexec, "-n", "2", *words]) + "\n")
    submitted = slurm.run("sbatch", "--wait", "-N2", "-n2", f"--output={output}", script)
    said = wait_for_text(output)
    assert submitted.returncode == 0, f"{submitted.stderr}\n{said}"
    assert_equal_runs(tmp_path / "run", one_process)
    assert said.count("epoch   1/2") == 1


def test_bad_input_under_srun_is_said_once(slurm: Any, cosmos: Path, tmp_path: Path) -> None:
    words = [*words_of(cosmos, tmp_path / "run"), "--train.local_batch_size", "20"]
    done = slurm.run("srun", "-N2", "-n2", *words)
    said = [line for line in done.stderr.splitlines() if "hpcbench: " in line]
    assert done.returncode == 2
    assert len(said) == 1
    assert "global batch of 40" in said[0]


def wait_for_text(path: Path) -> str:
    """The job's output, which Slurm may write a moment after the job's end."""
    deadline = time.monotonic() + 10
    while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.2)
    return path.read_text() if path.exists() else ""
