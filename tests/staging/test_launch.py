"""Rank and size from what launchers set: environments recorded under Slurm and MPICH, and contradictions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from staging.errors import InputError
from staging.ranks.launch import Launch, detect, expand_counts, expand_nodes, is_first_rank, started_by_srun

RECORDED = json.loads((Path(__file__).parent / "recorded_environments.json").read_text())

# (rank, size, local rank, local size, node, nodes) of every process
TWO_ON_ONE = [(0, 2, 0, 2, 0, 1), (1, 2, 1, 2, 0, 1)]
TWO_ON_TWO = [(0, 2, 0, 1, 0, 2), (1, 2, 0, 1, 1, 2)]
FOUR_ON_TWO = [(0, 4, 0, 2, 0, 2), (1, 4, 1, 2, 0, 2), (2, 4, 0, 2, 1, 2), (3, 4, 1, 2, 1, 2)]

EXPECTED = {
    "sbatch script, 1 node": ("none", [(0, 1, 0, 1, 0, 1)]),
    "sbatch script, 2 nodes": ("none", [(0, 1, 0, 1, 0, 1)]),
    "srun -N 1 -n 2": ("Slurm", TWO_ON_ONE),
    "srun -N 2 -n 4": ("Slurm", FOUR_ON_TWO),
    "srun -n 2 in sbatch, 1 node": ("Slurm", TWO_ON_ONE),
    "srun -n 2 in sbatch, 2 nodes": ("Slurm", TWO_ON_TWO),
    "srun --mpi=pmi2 -N 2 -n 2": ("PMI", TWO_ON_TWO),
    "mpiexec -n 2 in sbatch, 1 node": ("PMI", TWO_ON_ONE),
    "mpiexec -n 2 in sbatch, 2 nodes": ("PMI", TWO_ON_TWO),
    "mpiexec -n 4 in sbatch, 2 nodes": ("PMI", FOUR_ON_TWO),
}

SRUN = RECORDED["srun -N 2 -n 4"][3]
PMI2 = RECORDED["srun --mpi=pmi2 -N 2 -n 2"][1]
MPIEXEC = {"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "9", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_RANK": "5",
}  # fmt: skip
TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "a",
}  # fmt: skip


def test_every_recorded_launch_is_expected() -> None:
    assert set(RECORDED) == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_recorded_environment(name: str) -> None:
    source, ranks = EXPECTED[name]
    assert [detect(environ) for environ in RECORDED[name]] == [Launch(*rank, source=source) for rank in ranks]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_who_is_a_rank_of_srun_itself(name: str) -> None:
    assert {started_by_srun(environ) for environ in RECORDED[name]} == {name.startswith("srun")}


def test_mpiexec_under_slurm_is_told_apart_although_slurm_says_rank_0_to_all() -> None:
    environs = RECORDED["mpiexec -n 2 in sbatch, 1 node"]
    assert [environ["SLURM_PROCID"] for environ in environs] == ["0", "0"]
    assert [detect(environ).rank for environ in environs] == [0, 1]


def test_without_launcher_there_is_one_process() -> None:
    assert detect({"HOME": "/root"}) == Launch(0, 1, 0, 1, 0, 1, "none")


def test_open_mpi_and_pmix_agree() -> None:
    assert detect(OPEN_MPI) == Launch(5, 8, 1, 4, 1, 2, "PMIX")


def test_torchrun() -> None:
    assert detect(TORCHRUN) == Launch(3, 4, 1, 2, 1, 2, "torchrun")


@pytest.mark.parametrize("inner", [OPEN_MPI, TORCHRUN, {**TORCHRUN, "HPCBENCH_SPAWNED": "1"}])
def test_slurm_variables_inherited_by_children_of_another_launcher_are_no_source(inner: dict[str, str]) -> None:
    assert detect({**SRUN, **inner}) == detect(inner)


def test_srun_with_pmix_takes_the_size_from_slurm() -> None:
    assert detect({**SRUN, "PMIX_RANK": "3"}) == Launch(3, 4, 1, 2, 1, 2, "PMIX")


@pytest.mark.parametrize("step", ["4294967291", "4294967290"])
def test_batch_and_interactive_steps_are_not_started_by_srun(step: str) -> None:
    assert detect({**SRUN, "SLURM_STEP_ID": step}).world_size == 1


def test_flux_gives_pmi_and_its_own_local_rank() -> None:
    flux = {"PMI_RANK": "3", "PMI_SIZE": "4", "FLUX_TASK_RANK": "3", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_NNODES": "2"}
    assert detect({**flux, "LOCAL_WORLD_SIZE": "2"}) == Launch(3, 4, 1, 2, 1, 2, "PMI")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({**MPIEXEC, **TORCHRUN}, "PMI and torchrun disagree on rank (1 and 3)"),
        ({**MPIEXEC, "RANK": "1", "WORLD_SIZE": "4"}, "PMI and torchrun disagree on world_size (2 and 4)"),
        ({**PMI2, "PMI_RANK": "0"}, "PMI and Slurm disagree on rank (0 and 1)"),
        ({**PMI2, "PMI_SIZE": "1"}, "PMI and Slurm disagree on world_size (1 and 2)"),
        ({**OPEN_MPI, "PMIX_RANK": "0"}, "PMIX and Open MPI disagree on rank (0 and 5)"),
        ({**SRUN, "RANK": "0", "WORLD_SIZE": "1"}, "torchrun and Slurm disagree on rank (0 and 3)"),
        ({"PMI_RANK": "first", "PMI_SIZE": "2"}, "PMI_RANK ('first') must be a whole number"),
        ({**MPIEXEC, "PMI_RANK": "2"}, "PMI gives rank 2 of 2; ranks are 0 to 1"),
        ({"PMIX_RANK": "1"}, "PMIX gives a rank (1) but no variable gives the number of ranks"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "not the rank within the node; set LOCAL_RANK and LOCAL_WORLD_SIZE"),
        ({**MPIEXEC, "MPI_LOCALRANKID": "2"}, "local rank 2 of 2 in a world of 2"),
    ],
)
def test_contradictions_stop_in_one_line(environ: dict[str, str], words: str) -> None:
    with pytest.raises(InputError) as caught:
        detect(environ)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_slurm_short_forms() -> None:
    assert expand_counts("2(x3),1") == [2, 2, 2, 1]
    assert expand_counts("") == []
    assert expand_counts("many") == []
    assert expand_nodes("gpu[08-10,12],login") == ["gpu08", "gpu09", "gpu10", "gpu12", "login"]
    assert expand_nodes("r[1-2]n[1-2]") == ["r1n1", "r1n2", "r2n1", "r2n2"]
    assert expand_nodes("") == []


@pytest.mark.parametrize(
    ("environ", "first"),
    [
        ({}, True),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, True),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, False),
        ({"PMI_RANK": "1", "RANK": "0", "WORLD_SIZE": "2"}, True),  # who does not know its rank had better speak
        ({"PMI_RANK": "one"}, True),
    ],
)
def test_who_speaks_for_all(environ: dict[str, str], first: bool) -> None:
    assert is_first_rank(environ) is first
