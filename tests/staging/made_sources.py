"""Small sources of every kind, and the files that each becomes at the destination."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from tfrecord.writer import TFRecordWriter

ROWS = 23
"""Samples in the one HDF5 file."""

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


def indexed(root: Path, random: np.random.Generator, compressed: bool = False) -> Files:
    """TFRecords of several records each, and the index that DALI wants of each."""
    made: Files = {}
    root.mkdir(parents=True)
    for number in range(6):
        path = root / f"sample_{number}.tfrecord"
        writer = TFRecordWriter(str(path))
        for _ in range(1 + number % 3):
            writer.write({"x": (random.bytes(int(random.integers(1, 9000))), "byte")})
        writer.close()
        made[path.name] = data = path.read_bytes()
        made[f"{path.name}.idx"] = index_of(data)
        if compressed:
            (root / f"{path.name}.gz").write_bytes(gzip.compress(data))
            path.unlink()
    return made


def index_of(data: bytes) -> bytes:
    """Offset and size of each record; each has a length of 8 bytes, and two checksums of 4."""
    lines, offset = [], 0
    while offset < len(data):
        size = 16 + struct.unpack_from("<Q", data, offset)[0]
        lines.append(f"{offset} {size}\n")
        offset += size
    return "".join(lines).encode()


def chained(root: Path, random: np.random.Generator) -> Files:
    """Compressed TFRecords, which are decompressed and then indexed."""
    return indexed(root, random, compressed=True)


def arrays(root: Path, random: np.random.Generator) -> Files:
    """Arrays of which a part of the rows lands, in pieces that end within rows; the labels land as they are."""
    made: Files = {}
    (root / "train").mkdir(parents=True)
    for number in range(5):
        data, label = random.normal(size=(16, 50, 7)), random.integers(0, 9, 12)
        write(root, {f"train/data-{number}.npy": npy(data), f"train/label-{number}.npy": npy(label)})
        made |= {f"train/data-{number}.npy": npy(data[3:11]), f"train/label-{number}.npy": npy(label)}
    return made


def left_plain(root: Path, random: np.random.Generator) -> Files:
    """Compressed files, one of which stays so by its name, and files that are none."""
    made = gzipped(root, random)
    return made | write(root, {"simulated.json": b"{}", "extra/kept.gz": gzip.compress(random.bytes(20_000))})


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


def large(root: Path, random: np.random.Generator) -> Files:
    """Two files that several ranks bring together, and small ones."""
    sizes = {"giant": 9 << 20, "train/large": (8 << 20) + 5, "train/a": 7, "train/b": 50_000}
    return write(root, {name: random.bytes(size) for name, size in sizes.items()})


MAKERS = {
    "none": plain, "gunzip": gzipped, "tfrecord": tfrecords, "hdf5": hdf5, "untar": archives, "rows.h5": rows,
    "npy-rows": arrays, "tfrecord-index": indexed, "chain": chained, "plain": left_plain,
}  # fmt: skip
TRANSFORMS = {
    "none": "", "gunzip": "gunzip", "tfrecord": "tfrecord-to-npy", "hdf5": "hdf5-to-npy", "untar": "untar",
    "rows.h5": "", "npy-rows": "npy-rows:first=3,stop=11,of=16,names=*data-*.npy", "tfrecord-index": "tfrecord-index",
    "chain": "gunzip+tfrecord-index", "plain": "gunzip",
}  # fmt: skip
"""The transform for each source."""
EXCLUSIONS = {"plain": ("auto", "extra/*")}
"""Which files of a source the transform leaves as they are."""


def pack(path: Path, members: dict[str, bytes], time_s: int) -> None:
    """Write an archive whose modification time is ``time_s``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    os.utime(path, (time_s, time_s))
