"""The staging layer's ranks on two nodes of a real Slurm: their nodes, and ending together."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.mpi, pytest.mark.usefixtures("mpiexec")]

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "staging" / "programs"
LIMIT_S = 10.0


@pytest.fixture(autouse=True)
def import_path(slurm: Any) -> None:
    """Jobs run in a folder of their own."""
    slurm.environ["PYTHONPATH"] = str(ROOT)


def test_two_nodes_with_two_ranks_each(slurm: Any) -> None:
    done = slurm.run("srun", "--mpi=pmi2", "-N2", "-n4", sys.executable, PROGRAMS / "meeting.py")
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)
    places = [found["place"] for found in ranks]
    assert [(place["rank"], place["size"], place["nodes"], place["local_size"]) for place in places] == [
        (rank, 4, 2, 2) for rank in range(4)
    ]
    assert [place["node"] for place in places] == [0, 0, 1, 1]
    assert [place["local_rank"] for place in places] == [0, 1, 0, 1]
    assert [place["node_name"] for place in places] == ["node1", "node1", "node2", "node2"]
    for found in ranks:
        assert found["ring"] is found["line"] is True
        assert found["per_rank"]["nodes"] == 4
        assert found["last rank wrong"][0] == "node2: the file is gone"
    assert [found["last rank wrong"][1] for found in ranks] == [False, False, False, True]


@pytest.mark.slow
def test_ranks_with_used_memory_meet(slurm: Any) -> None:
    done = slurm.run("srun", "--mpi=pmi2", "-N2", "-n4", sys.executable, PROGRAMS / "dirty_memory.py", timeout_s=60)
    assert done.stdout.split() == ["4"] * 4, done.stderr


def test_scattered_ranks_find_their_nodes(slurm: Any) -> None:
    words = ["srun", "--mpi=pmi2", "-N2", "-n4", "--distribution=cyclic", sys.executable, PROGRAMS / "meeting.py"]
    done = slurm.run(*words)
    assert done.returncode == 0, done.stderr
    places = [found["place"] for found in json.loads(done.stdout)]
    assert [(place["node"], place["local_rank"]) for place in places] == [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 3])
def test_a_killed_rank_ends_the_job(slurm: Any, who: int) -> None:
    command = [sys.executable, PROGRAMS / "failing_world.py", "kill", who]
    done = slurm.run("srun", "--mpi=pmi2", "-N2", "-n4", *command)
    ended = time.time()
    killed = [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("TIME ")]
    assert done.returncode != 0
    assert ended - killed[0] < LIMIT_S
    node = "node1" if who == 0 else "node2"
    aborted = [line for line in done.stderr.splitlines() if line.startswith("staging: aborted: rank ")]
    assert [f"rank {who} on {node}" in line and "died without a word" in line for line in aborted] == [True]


def test_bad_input_is_said_once(slurm: Any) -> None:
    done = slurm.run("srun", "--mpi=pmi2", "-N2", "-n4", sys.executable, PROGRAMS / "failing_world.py", "together", 2)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "program: " in line]
    assert said == ["program: error: node2: the folder is not there"]


def test_srun_without_mpi_stops(slurm: Any) -> None:
    done = slurm.run("srun", "--mpi=none", "-N2", "-n2", sys.executable, PROGRAMS / "failing_world.py", "nothing", 9)
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if "program: " in line]
    assert said == [
        "program: error: Slurm started 2 processes, but MPI sees 1, so they would all stage the same; start them with "
        "'srun --mpi=pmi2' (or pmix), or with the mpiexec of the MPI library that mpi4py uses"
    ]
