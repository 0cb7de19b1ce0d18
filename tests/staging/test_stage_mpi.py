"""Stagings by ranks of MPI: every placement, path and transform ends as a plain copy; an exchange reads bytes once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.staging.made_sources import MAKERS, ROWS, Files
from tests.staging.processes import PROGRAMS, contents, ended, memory_folder, start

pytestmark = pytest.mark.mpi

UNCOUNTED_BYTES = 1024
"""Per rank, what an MPI library may read besides, to wake its threads; MPICH in shared memory: nothing."""


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where it can be: a flush of a disk waits for what others write to it."""
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Files]]:
    """The folder of all sources, and what each becomes."""
    root = tmp_path_factory.mktemp("sources")
    random = np.random.default_rng(3)
    return root, {name: make(root / name, random) for name, make in MAKERS.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "nodes"), [(1, [1]), (2, [1, 2]), (4, [2, 4]), pytest.param(3, [2, 3], marks=pytest.mark.long)]
)
def test_every_placement_path_and_transform(
    size: int, nodes: list[int], expected: tuple[Path, dict[str, Files]], tmp_path: Path, mpiexec: str
) -> None:
    sources, becomes = expected
    command = [mpiexec, "-n", size, sys.executable, PROGRAMS / "stage_all.py", sources, tmp_path, *nodes]
    code, output, error = ended(start(command), 240)  # ranks of MPI, busy while they wait, take turns on a core
    assert code == 0, error
    stagings = [json.loads(line) for line in output.splitlines()]
    assert len(stagings) == len(nodes) * len(MAKERS) * 4
    for staging in stagings:
        check_content(staging, becomes[staging["source"]])
        check_bytes_read(staging, sources / staging["source"], size)


def check_content(staging: dict[str, Any], expected: Files) -> None:
    """Each node has all, or all nodes together each file once."""
    nodes = staging["nodes"]
    found = [contents(Path(staging["folder"]) / f"node{node}") for node in range(nodes)]
    if staging["placement"] == "replicate":
        assert all(part == expected for part in found), staging
    else:
        assert sum(len(part) for part in found) == len(expected), staging
        assert {name: data for part in found for name, data in part.items()} == expected, staging


def check_bytes_read(staging: dict[str, Any], source: Path, size: int) -> None:
    """What the system counted is what was read; with ``exchange``, and for shards, each byte of the source once."""
    copies = staging["nodes"] if (staging["placement"], staging["path"]) == ("replicate", "direct") else 1
    if source.is_dir():
        once = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    else:
        once = ROWS * (6 * 40 + 4) * 8  # the arrays; what HDF5 keeps about them was read for the listing
    assert staging["bytes_read"] == copies * once, staging
    assert 0 <= sum(staging["rchar"]) - copies * once <= size * UNCOUNTED_BYTES, staging
