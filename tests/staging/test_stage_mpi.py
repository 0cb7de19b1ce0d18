"""Stagings by ranks of MPI: every placement, path and transform ends as a plain copy; an exchange reads bytes once."""

from __future__ import annotations

import gzip
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tfrecord.writer import TFRecordWriter

from tests.params import slow_except
from tests.staging.processes import PROGRAMS, contents, ended, memory_folder, start

pytestmark = pytest.mark.mpi

UNCOUNTED_BYTES = 1024
"""Per rank, what an MPI library may read besides, to wake its threads; MPICH in shared memory: nothing."""
ROWS = 23

Files = dict[str, bytes]


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """The file that NumPy writes."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def plain(root: Path, random: np.random.Generator) -> Files:
    """Files of several sizes, one of none and one of many pieces."""
    sizes = [0, 1, 4096, 70_000, 300, 12_345, 5, 50_000, 2_000, 2_000]
    files = {f"{'train' if n % 3 else 'validation'}/{n:02d}.bin": random.bytes(size) for n, size in enumerate(sizes)}
    return write(root, files)


def gzipped(root: Path, random: np.random.Generator) -> Files:
    """Compressed files."""
    made = {f"train/{n}.bin": bytes(n * 1000) + random.bytes(3000 * n) for n in range(7)}
    write(root, {f"{name}.gz": gzip.compress(data) for name, data in made.items()})
    return made


def tfrecords(root: Path, random: np.random.Generator) -> Files:
    """Samples of CosmoFlow, every other one compressed; written by another package."""
    made: Files = {}
    root.mkdir(parents=True)
    for number in range(7):
        counts = random.poisson(0.4, (8, 8, 8, 4)).astype(np.int16)
        label = random.normal(size=4).astype(np.float32)
        path = root / f"sample_{number}.tfrecord"
        writer = TFRecordWriter(str(path))
        writer.write({"x": (counts.tobytes(), "byte"), "y": (label.tolist(), "float")})
        writer.close()
        if number % 2:
            (root / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        made |= {f"sample_{number}_data.npy": npy(counts), f"sample_{number}_label.npy": npy(label)}
    return made


def hdf5(root: Path, random: np.random.Generator) -> Files:
    """Samples of DeepCAM, and the statistics that they share."""
    made: Files = {}
    (root / "train").mkdir(parents=True)
    for number in range(5):
        data = random.normal(size=(12, 10, 16)).astype(np.float32)
        label = random.integers(0, 3, (12, 10)).astype(np.float32)
        with h5py.File(root / "train" / f"data-{number}.h5", "w") as file:
            file["climate/data"], file["climate/labels_0"] = data, label
        made |= {f"train/data-{number}.npy": npy(data), f"train/label-{number}.npy": npy(label.astype(np.uint8))}
    (root / "stats.h5").write_bytes(b"shared")
    return made | {"stats.h5": b"shared"}


def archives(root: Path, random: np.random.Generator) -> Files:
    """Archives, plain and compressed, and a file that is none."""
    made: Files = {}
    (root / "train").mkdir(parents=True)
    for number, (suffix, mode) in enumerate([(".tar", "w"), (".tar.gz", "w:gz"), (".tar", "w"), (".tar.xz", "w:xz")]):
        with tarfile.open(root / "train" / f"shard-{number}{suffix}", mode) as archive:  # type: ignore[call-overload]
            for member in range(5):
                name, data = f"class{member % 2}/{number}-{member}.jpg", random.bytes(4000 * member)
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
                made[f"train/{name}"] = data
    (root / "labels.txt").write_bytes(b"0 1")
    return made | {"labels.txt": b"0 1"}


def rows(path: Path, random: np.random.Generator) -> Files:
    """One HDF5 file of many samples."""
    arrays = {"data": random.normal(size=(ROWS, 6, 40)), "label": random.integers(0, 9, (ROWS, 4))}
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return {f"{row:08d}_{name}.npy": npy(array[row]) for name, array in arrays.items() for row in range(ROWS)}


def write(root: Path, files: Files) -> Files:
    """Write ``files`` below ``root``; returns them."""
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return files


MAKERS = {
    "none": plain, "gunzip": gzipped, "tfrecord": tfrecords, "hdf5": hdf5, "untar": archives, "rows.h5": rows,
}  # fmt: skip


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


@pytest.mark.parametrize(("size", "nodes"), slow_except([(2, [1, 2])], [
    (1, [1]), (2, [1, 2]), (3, [2, 3]), (4, [2, 4]),
]))  # fmt: skip
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
