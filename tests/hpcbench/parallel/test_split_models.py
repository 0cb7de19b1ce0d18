"""Both applications on spatial meshes: outputs, losses, all gradients and many steps as of one process in float64."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.hpcbench.parallel.spawned import spawned

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAMS = Path(__file__).parent / "programs"
MORE = [("2", 2, 1), ("4", 4, 1), ("4", 4, 2), ("2x2", 4, 2)]
"""Meshes that show little new: more parts along one axis, twice the ranks, or half of them."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spatial", "size", "data"),
    [("2", 2, 2), ("2x2", 4, 1), *(pytest.param(*mesh, marks=pytest.mark.long) for mesh in MORE)],
)
@pytest.mark.parametrize(("application", "kernel"), [("cosmoflow", 3), ("deepcam", 0)])
def test_split_models_train_as_whole_ones(application: str, kernel: int, spatial: str, size: int, data: int) -> None:
    """With dropout in the head of one, and batch norm in the other; clipped SGD, and LAMB that clips."""
    check(run(size * data, application, spatial, kernel))


@pytest.mark.slow
@pytest.mark.parametrize("spatial", ["2", "1x2x2"])
def test_the_kernel_of_two_planes_takes_them_from_the_far_side(spatial: str) -> None:
    """As v0.7 of CosmoFlow has it."""
    check(run(4, "cosmoflow", spatial, 2))


@pytest.mark.slow
def test_blocks_that_pool_by_the_mean_are_split_alike() -> None:
    """As in the preset laptop."""
    check(run(4, "cosmoflow", "1x2x2", "mean"))


def check(everyone: list[dict[str, dict[str, float]]]) -> None:
    """Rank 0 compares with one process; the others have the weights that it has."""
    for optimizer, values in everyone[0].items():
        assert values["outputs"] < 1e-9, optimizer
        assert values["gradients"] < 1e-9, optimizer
        assert values["loss"] < 1e-8, optimizer
        assert values["weights"] < 1e-8, optimizer
    for found in everyone:
        assert all(values["between ranks"] == 0 for values in found.values())


@pytest.mark.slow
def test_batch_norm_groups_are_of_places_and_of_all_ranks_of_a_sample() -> None:
    """As ``train.batchnorm_group_size`` 2 on a mesh of two by two: one process has the four samples in one batch."""
    check(run(4, "deepcam", "2", "group"))


@pytest.mark.parametrize("application", ["cosmoflow", "deepcam"])
@pytest.mark.slow
def test_in_float32_a_split_rounds_as_another_memory_layout_does(application: str) -> None:
    found = run(4, application, "2x2", "float32")[0]["rounding"]
    assert found["loss"] < 1e-5
    assert 0 < found["gradients"] <= 3 * found["layout"]


def run(ranks: int, application: str, spatial: str, kernel: int | str) -> list[dict[str, dict[str, float]]]:
    """What every rank found."""
    program = PROGRAMS / "split_models.py"
    command = spawned(ranks, program, application, spatial, kernel)
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, timeout=600, check=True
    )
    everyone: list[dict[str, dict[str, float]]] = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(everyone) == ranks
    return everyone
