"""Ranks find their nodes, send buffers to each other, and are told when they are not one world."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.errors import EveryRankError, InputError
from staging.ranks import mpi_world as module
from staging.ranks.collective_errors import raise_first, together
from staging.ranks.mpi_world import mpi_world, one_node_per_rank, places, simulated
from staging.ranks.world import Alone, Place

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "programs" / "meeting.py"
WHERE = "import sys; from staging.ranks.mpi_world import mpi_world as w; print(w().place, 'mpi4py.MPI' in sys.modules)"
LAUNCHERS = ("PMI", "PMIX", "OMPI_", "SLURM", "RANK", "WORLD_SIZE", "LOCAL_")


def environ_without_launcher() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}


def python(script: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], env=environ_without_launcher() | environ, cwd=ROOT, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_under_mpiexec(size: int, mpiexec: str) -> None:
    command = [mpiexec, "-n", str(size), sys.executable, str(PROGRAM)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    ranks: list[dict[str, Any]] = json.loads(done.stdout)
    last = size - 1
    for rank, found in enumerate(ranks):
        place = Place(**found["place"])
        assert (place.rank, place.size, place.node, place.nodes) == (rank, size, 0, 1)
        assert (place.local_rank, place.local_size) == (rank, size)
        for nodes, simulated_place in enumerate(found["simulated"], start=1):
            assert simulated_place["nodes"] == nodes
            assert simulated_place["node_name"] == f"node{rank * nodes // size}"
        alone = Place(**found["per_rank"])
        assert (alone.node, alone.nodes, alone.local_rank, alone.local_size) == (rank, size, 0, 1)
        assert found["gathered"] == [{"rank": number} for number in range(size)]
        assert found["broadcast"] == ["from", 0]
        assert found["ring"] is found["line"] is True
        assert found["nothing wrong"] == ["", False]
        named = f"{place.node_name}: the file is gone" if size > 1 else "the file is gone"
        assert found["last rank wrong"] == [named, rank == last]
        named = f"node{last}: the file is gone" if size > 1 else "the file is gone"
        assert found["last node wrong"] == [named, rank == last]
        assert found["all wrong"] == ["the file is gone", rank == 0]
        assert found["wrong length"] == (
            f"rank {(rank - 1) % size} sent 3 bytes into a buffer of 5" if size > 1 else ""
        )
    assert len({found["per_rank"]["node_name"] for found in ranks}) == size


@pytest.mark.mpi
def test_a_library_without_threads(mpiexec: str) -> None:
    script = "from staging.ranks.mpi_world import mpi_world; mpi_world()"
    command = [mpiexec, "-n", "2", sys.executable, "-c", script]
    environ = os.environ | {"MPI4PY_RC_THREAD_LEVEL": "single"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode != 0
    assert "InputError: the MPI library runs at a thread level below MPI_THREAD_SERIALIZED; unset" in done.stderr


def test_one_process_loads_no_mpi() -> None:
    done = python(WHERE, SLURMD_NODENAME="gpu07")
    assert done.stdout.strip() == f"{Place(0, 1, 0, 1, 0, 1, 'gpu07')} False"


def test_one_rank_of_a_launcher_needs_no_mpi() -> None:
    done = python(WHERE, SLURMD_NODENAME="gpu07", PMI_RANK="0", PMI_SIZE="1")
    assert done.stdout.strip() == f"{Place(0, 1, 0, 1, 0, 1, 'gpu07')} False"


def test_several_ranks_without_an_mpi_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "communicator", lambda: None)
    with pytest.raises(InputError, match="PMI started 4 processes, but mpi4py finds no MPI library; install mpi4py"):
        mpi_world({"PMI_RANK": "1", "PMI_SIZE": "4"})


STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NODEID": "0", "SLURM_STEP_NUM_TASKS": "3"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        (STEP, "Slurm started 3 processes, but MPI sees 1, so they would all stage the same; start them with 'srun"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "torchrun started 2 processes, but MPI sees 1"),
        ({"PMIX_RANK": "0"}, "PMIX started several processes, but MPI sees 1"),
    ],
)
def test_processes_that_mpi_does_not_join(environ: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "communicator", lambda: SimpleNamespace(Get_size=lambda: 1))
    with pytest.raises(EveryRankError, match=said) as caught:
        mpi_world(environ)
    assert caught.value.speaks == ("1" not in (environ.get("SLURM_PROCID"), environ.get("RANK")))


@pytest.mark.mpi
def test_the_library_itself_is_alone_without_a_launcher(mpiexec: str) -> None:
    script = "from staging.ranks.mpi_world import mpi_world; mpi_world()"
    assert "EveryRankError: Slurm started 3 processes, but MPI sees 1" in python(script, **STEP).stderr


def test_no_mpi_library_is_no_communicator() -> None:
    script = "from staging.ranks.mpi import abort_mpi, communicator; print(communicator()); abort_mpi(1)"
    assert python(script, MPI4PY_LIBMPI="/nowhere/libmpi.so").stdout.strip() == "None"


def test_contradicting_launchers_stop() -> None:
    with pytest.raises(InputError, match="disagree on rank"):
        mpi_world({"PMI_RANK": "0", "PMI_SIZE": "2", "RANK": "1", "WORLD_SIZE": "2"})


@pytest.mark.parametrize("nodes", [-1, 0, 2])
def test_more_simulated_nodes_than_ranks(nodes: int) -> None:
    with pytest.raises(InputError, match=rf"--simulated-nodes \({nodes}\) must be 1 to the number of ranks \(1\)"):
        simulated(Alone(), nodes)


def test_one_process_is_one_node() -> None:
    assert simulated(Alone("here"), 1).place == Place(0, 1, 0, 1, 0, 1, "node0")
    assert one_node_per_rank(world := Alone("here")) is world


def test_nodes_are_numbered_by_their_first_rank() -> None:
    found = places(["b", "a", "b", "c"], ["beta", "alpha", "beta", "gamma"])
    assert [place.node for place in found] == [0, 1, 0, 2]
    assert [place.node_name for place in found] == ["beta", "alpha", "beta", "gamma"]
    assert [(place.local_rank, place.local_size) for place in found] == [(0, 2), (0, 1), (1, 2), (0, 1)]


def test_nodes_of_one_name_are_told_apart() -> None:
    # As several Slurm daemons on one machine report it; one of the made names is already taken.
    found = places([0, 0, 2, 3, 4], ["host", "ignored", "host-0", "host", "other"])
    assert [place.node_name for place in found] == ["host-0-", "host-0-", "host-0", "host-2", "other"]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.data())
def test_places_of_any_ranks(keys: list[int], data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(["n", "n-0", "n-1", "m"]), min_size=len(keys), max_size=len(keys)))
    found = places(keys, names)
    nodes = len(set(keys))
    assert [place.rank for place in found] == list(range(len(keys)))
    assert {(place.size, place.nodes) for place in found} == {(len(keys), nodes)}
    assert len({(place.node, place.local_rank) for place in found}) == len(keys)
    assert len({place.node_name for place in found}) == len({place.node for place in found}) == nodes
    for place, key in zip(found, keys, strict=True):
        assert place.local_size == keys.count(key)
        assert 0 <= place.local_rank < place.local_size
    first = [place.rank for place in found if place.local_rank == 0]
    assert [found[rank].node for rank in first] == list(range(nodes))


@given(st.integers(1, 50), st.integers(1, 50))
def test_simulated_nodes_are_contiguous_and_even(size: int, nodes: int) -> None:
    nodes = min(nodes, size)
    found = [simulated(member(rank, size), nodes).place for rank in range(size)]
    assert [place.node for place in found] == sorted(place.node for place in found)
    assert {place.nodes for place in found} == {nodes}
    sizes = {place.local_size for place in found}
    assert max(sizes) - min(sizes) <= 1


def member(rank: int, size: int) -> Alone:
    world = Alone("here")
    world.place = Place(rank, size, 0, 1, rank, size, "here")
    return world


def test_one_process_keeps_its_own_error() -> None:
    error = InputError("no such folder")

    def step() -> None:
        raise error

    with pytest.raises(InputError) as caught:
        together(Alone(), step)
    assert caught.value is error
    assert together(Alone(), lambda: 7) == 7


def test_the_first_problem_is_raised_and_its_node_named() -> None:
    found = [("a", None), ("b", "the disk is full"), ("c", "no such folder")]
    for rank in range(3):
        with pytest.raises(EveryRankError, match=r"^b: the disk is full$") as caught:
            raise_first(found, rank)
        assert caught.value.speaks == (rank == 1)
    with pytest.raises(EveryRankError, match=r"^no space on b$"):
        raise_first([("a", None), ("b", "no space on b")], 0)
    raise_first([("a", None), ("b", None)], 0)


@pytest.mark.mpi
def test_the_communicator_has_the_number_of_ranks_that_is_asked_for(mpiexec: str) -> None:
    script = "from staging.ranks.mpi import communicator; print(communicator(2), communicator(1) is not None)"
    assert python(script).stdout.split() == ["None", "True"]
