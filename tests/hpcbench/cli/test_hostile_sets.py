"""`hpcbench data verify` and `inspect` of sets with hostile files: a line for each, no hang, no memory taken."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from apps.cosmoflow.config import Config as CosmoFlowConfig
from apps.cosmoflow.samples import SUFFIXES, write_sample
from apps.deepcam.statistics import Statistics, write_statistics
from hpcbench.cli.main import main
from staging.formats.hdf5 import write_datasets

Damage = Callable[[Path], object]


def append(data: bytes) -> Damage:
    """Damage that puts ``data`` behind the end."""
    return lambda path: path.write_bytes(path.read_bytes() + data)


def insert(data: bytes) -> Damage:
    """Damage that puts ``data`` between the end of a deflate stream and the eight bytes of its trailer."""
    return lambda path: path.write_bytes((whole := path.read_bytes())[:-8] + data + whole[-8:])


def replace(content: Callable[[bytes], bytes]) -> Damage:
    """Damage to what a gzip file holds."""
    return lambda path: path.write_bytes(gzip.compress(content(gzip.decompress(path.read_bytes()))))


def pipe(path: Path) -> None:
    """A pipe in its place."""
    path.unlink()
    os.mkfifo(path)


def linked_pipe(path: Path) -> None:
    """A link to a pipe in its place."""
    pipe(path)
    path.rename(path.with_name("pipe"))
    path.symlink_to("pipe")


def folder(path: Path) -> None:
    """A folder in its place."""
    path.unlink()
    path.mkdir()


def bomb(path: Path) -> None:
    """100 kB that grow to 100 MB."""
    packer = zlib.compressobj(9, wbits=31)
    path.write_bytes(packer.compress(bytes(100 << 20)) + packer.flush()[:-4] + struct.pack("<I", 5000))


COSMOFLOW: dict[str, tuple[Damage, str]] = {
    "second record": (replace(lambda raw: raw + raw), "has a second record, of"),
    "second member": (append(gzip.compress(b"more, and it is long enough")), "record 1 at byte"),
    "behind gzip": (append(b"garbage"), "has 7 bytes after the end of its gzip data"),
    "within gzip": (replace(lambda raw: raw + b"garbage"), "record 1 at byte"),
    "a byte before the trailer": (insert(b"x"), "damaged gzip data"),
    "8 bytes before the trailer": (insert(bytes(8)), "damaged gzip data"),
    "100 bytes before the trailer": (insert(b"x" * 100), "damaged gzip data"),
    "empty members": (append(gzip.compress(b"") * 1000), "has many empty gzip members"),
    "changed": (replace(lambda raw: raw[:500] + b"?" + raw[501:]), "CRC32C"),
    "pipe": (pipe, "is a pipe, not a file"),
    "link to a pipe": (linked_pipe, "is a pipe, not a file"),
    "folder": (folder, "is a folder, not a file"),
    "bomb": (bomb, "bytes, the most that are expected"),
    "empty": (lambda path: path.write_bytes(b""), "is not gzip"),
}


def verify(capsys: pytest.CaptureFixture[str], app: str, root: Path, *words: str) -> tuple[int, list[str]]:
    """Exit code and printed lines."""
    capsys.readouterr()
    code = main(["data", "verify", app, "--preset", "smoke", "--data.root", str(root), "--processes", "1", *words])
    return code, capsys.readouterr().out.splitlines()


def write_cosmoflow(root: Path, form: str, samples: int) -> list[Path]:
    """A split for training of samples as the smallest preset has them, and one validation sample."""
    config = CosmoFlowConfig()
    config.data.sample_size, config.data.format = 16, form  # type: ignore[assignment]
    files = [root / "train" / f"{number:02}{SUFFIXES[form]}" for number in range(samples)]
    files.append(root / "validation" / f"00{SUFFIXES[form]}")
    counts = np.random.default_rng(0).poisson(1, (16, 16, 16, 4)).astype(np.int16)
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sample(path, counts, np.zeros(4, np.float32), config.data)
    return files


@pytest.mark.slow
def test_verify_lists_each_hostile_tfrecord(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_cosmoflow(tmp_path, "tfrecord", len(COSMOFLOW))
    for path, (damage, _) in zip(files, COSMOFLOW.values(), strict=False):
        damage(path)
    code, lines = verify(capsys, "cosmoflow", tmp_path)
    assert code == 2
    assert lines[0] == f"1 of {len(files)} files are good"
    assert len(lines) == len(files)
    for line, path, (_, words) in zip(lines[1:], files, COSMOFLOW.values(), strict=False):
        assert line.startswith(f"{path}: ")
        assert words in line


def test_verify_lists_each_hostile_npy_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_cosmoflow(tmp_path, "npy", 4)
    labels = [path.with_name(path.name.replace("data", "label")) for path in files]
    append(b"garbage")(files[0])
    labels[1].unlink()
    np.save(labels[1], np.array([0, np.nan, 0, 0], np.float32))
    pipe(labels[2])
    np.save(files[3], np.full((16, 16, 16, 4), -1, np.int16))
    code, lines = verify(capsys, "cosmoflow", tmp_path, "--data.format", "npy")
    assert code == 2
    told = {line.split(": ")[0]: line for line in lines[1:]}
    assert "holds 32775 bytes of data where its header says 32768" in told[str(files[0])]
    assert "label [0.0, nan, 0.0, 0.0] is not within [-1, 1]" in told[str(labels[1])]
    assert "is a pipe, not a file" in told[str(labels[2])]
    assert "holds a count of -1" in told[str(files[3])]


def write_deepcam(root: Path, samples: int) -> list[Path]:
    """The same for DeepCAM, with its statistics."""
    rng = np.random.default_rng(0)
    shape = (48, 64)
    files = [root / "train" / f"data-{number}.h5" for number in range(samples)] + [root / "validation" / "data-0.h5"]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        labels = rng.integers(0, 3, shape).astype(np.float32)
        fields = rng.normal(size=(*shape, 16)).astype(np.float32)
        write_datasets(path, {"climate/data": fields, "climate/labels_0": labels, "climate/labels_1": labels})
    ones = np.ones(16)
    whole = Statistics(5, ones, 2 * ones, -ones.astype(np.float32), ones.astype(np.float32))
    write_statistics(root / "stats.h5", whole)
    return files


def test_verify_lists_each_hostile_hdf5_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = write_deepcam(tmp_path, 7)
    append(b"!")(files[0])
    files[1].write_bytes(files[1].read_bytes()[:-1000])
    pipe(files[2])
    with h5py.File(files[3], "r+") as file:
        file.create_dataset("climate/count", (22 << 27,), "i8")
    with h5py.File(files[4], "r+") as file:
        del file["climate/data"]
        file.create_dataset("climate/data", (22 << 10, 1 << 14, 16), "f4")
    with h5py.File(files[5], "r+") as file:
        file["climate/data"][3, 4, 5] = np.inf
    with h5py.File(files[6], "r+") as file:
        file["climate/labels_0"][3, 4] = np.nan
    with h5py.File(tmp_path / "stats.h5", "r+") as file:
        file["climate/mean"][2] = np.nan
    code, lines = verify(capsys, "deepcam", tmp_path, "--data.height", "48", "--data.width", "64")
    assert code == 2
    assert lines[0] == "1 of 9 files are good"
    told = dict(zip([tmp_path / "stats.h5", *files], lines[1:], strict=False))
    assert all(line.startswith(f"{path}: ") for path, line in told.items())
    assert "channel 2 (V850) has mean nan" in told[tmp_path / "stats.h5"]
    words = ["has 1 bytes behind the end", "truncated file", "is a pipe", "in its datasets where",
             "in its datasets where", "QREFHT is inf at row 3", "label nan at row 3, column 4 is not"]  # fmt: skip
    assert all(word in told[path] for word, path in zip(words, files, strict=False))


@pytest.mark.parametrize("app", ["cosmoflow", "deepcam"])
def test_inspect_refuses_what_is_no_file(tmp_path: Path, app: str, capsys: pytest.CaptureFixture[str]) -> None:
    suffix = ".tfrecord" if app == "cosmoflow" else ".h5"
    os.mkfifo(tmp_path / f"a{suffix}")
    (tmp_path / f"0{suffix}").mkdir()
    for path in (tmp_path / f"a{suffix}", tmp_path):
        assert main(["data", "inspect", app, str(path)]) == 2
        assert f"a{suffix}: is a pipe, not a file; remove it" in capsys.readouterr().err
    (tmp_path / f"a{suffix}").unlink()
    (tmp_path / f"a{suffix}").symlink_to("nothing")
    assert main(["data", "inspect", app, str(tmp_path)]) == 2
    assert "No such file" in capsys.readouterr().err
