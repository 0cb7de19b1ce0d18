"""What is read first of each staged file is compared with what landed, whatever reads it, and nothing more is."""

from __future__ import annotations

import json
import pickle
import random
import shlex
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from hpcbench.cli.main import main
from staging import first_reads
from staging.checksums import BLOCK_BYTES
from staging.errors import DataError
from staging.first_reads import FirstReads, words_again
from staging.formats.hdf5 import read_dataset
from staging.formats.npy import read_array, write_array
from staging.formats.tfrecord import read_record, write_records
from staging.ledger.jsonl import append_lines
from staging.ledger.manifest import Manifest, load_records, manifest_path
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage
from tests.staging.processes import contents
from tests.staging.spoiled import flip

SHAPE = (6, 50_000)
ARRAY = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
"""1.2 MB: 5 blocks."""


def make(source: Path) -> None:
    """A file of every form."""
    (source / "train").mkdir(parents=True)
    write_array(source / "train/whole.npy", ARRAY)
    write_array(source / "small.npy", ARRAY[:1, :5])
    layouts: dict[str, dict[str, Any]] = {
        "plain": {}, "chunked": {"chunks": (2, 50_000)}, "gzip": {"chunks": (2, 50_000), "compression": "gzip"},
    }  # fmt: skip
    for name, layout in layouts.items():
        with h5py.File(source / f"{name}.h5", "w") as file:
            file.create_dataset("data", data=ARRAY, **layout)
            file.create_dataset("label", data=np.arange(4.0))
    write_records(source / "plain.tfrecord", [ARRAY.tobytes()], "none")
    write_records(source / "packed.tfrecord", [ARRAY.tobytes()], "gzip")


READERS: dict[str, Callable[[Path], Any]] = {
    "train/whole.npy": lambda path: read_array(path, shape=SHAPE, dtype=np.float32),
    "small.npy": lambda path: read_array(path, shape=(1, 5), dtype=np.float32),
    "plain.h5": lambda path: read_dataset(path, "data", shape=SHAPE),
    "chunked.h5": lambda path: read_dataset(path, "data", shape=SHAPE),
    "gzip.h5": lambda path: read_dataset(path, "data", shape=SHAPE),
    "plain.tfrecord": lambda path: read_record(path, "none"),
    "packed.tfrecord": lambda path: read_record(path, "gzip"),
}


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """A staged set of all forms."""
    make(tmp_path / "source")
    stage(StageOptions(tmp_path / "source", str(tmp_path / "out")), Alone(), quiet=True)
    return tmp_path / "out"


def test_folders_far_below_the_destination_are_checked(tmp_path: Path) -> None:
    make(tmp_path / "source/a/b/c/d")
    stage(StageOptions(tmp_path / "source", str(tmp_path / "out")), Alone(), quiet=True)
    path = tmp_path / "out/a/b/c/d/train/whole.npy"
    flip_at(path, 500_000)
    reads = FirstReads(tmp_path / "out/a/b/c/d")
    assert reads.applies
    with reads.checking(), pytest.raises(DataError, match="has CRC32C"):
        READERS["train/whole.npy"](path)


def test_what_lies_behind_a_link_is_not_taken_for_staged(staged: Path, tmp_path: Path) -> None:
    reads = FirstReads(staged)
    (staged / "train").rename(tmp_path / "elsewhere")
    (staged / "train").symlink_to(tmp_path / "elsewhere")
    with reads.checking(), pytest.raises(DataError, match="lies behind a link below"):
        READERS["train/whole.npy"](staged / "train/whole.npy")


def flip_at(path: Path, position: int) -> None:
    """Flip a bit of one byte, in place."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 4]))


@pytest.mark.parametrize("name", READERS)
def test_what_is_as_it_landed_is_read(staged: Path, name: str) -> None:
    checks = FirstReads(staged)
    plain = READERS[name](staged / name)
    for _ in range(2):
        with checks.checking():
            assert np.array_equal(np.asarray(READERS[name](staged / name)), np.asarray(plain))


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_anywhere_in_the_data_is_found(staged: Path, name: str) -> None:
    """Of HDF5 files what is not read is not looked at; their values lie behind the first 4 kB and end the file."""
    path, dice = staged / name, random.Random(name)
    size = path.stat().st_size
    low, high = (4096, 4096 + 5 * BLOCK_BYTES // 2) if name.endswith("h5") else (0, size)
    for _ in range(12):
        position = dice.randrange(low, min(high, size))
        flip_at(path, position)
        problem = r"has CRC32C [0-9a-f]{8} where [0-9a-f]{8} landed"
        with pytest.raises(DataError, match=problem) as error, FirstReads(staged).checking():
            READERS[name](path)
        assert str(error.value).startswith(f"{path}: ")
        flip_at(path, position)
    with FirstReads(staged).checking():
        READERS[name](path)


def test_another_size_is_found(staged: Path) -> None:
    with (staged / "plain.h5").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=r"bytes where \d+ landed"), FirstReads(staged).checking():
        READERS["plain.h5"](staged / "plain.h5")


@pytest.mark.parametrize("row", range(6))
def test_of_a_part_no_more_than_its_blocks_are_compared(staged: Path, row: int) -> None:
    path = staged / "train/whole.npy"
    start, stop = 128 + 200_000 * row, 128 + 200_000 * (row + 1)
    touched = range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
    for block in range(5):
        flip_at(path, block * BLOCK_BYTES + 1000)
        checks = FirstReads(staged)
        try:
            with checks.checking():
                found = read_array(path, shape=SHAPE, dtype=np.float32, selection=[slice(row, row + 1)])
            assert block not in touched
            assert np.array_equal(found, ARRAY[row : row + 1])
        except DataError:
            assert block in touched
        flip_at(path, block * BLOCK_BYTES + 1000)


def test_a_part_of_a_dataset(staged: Path) -> None:
    path = staged / "plain.h5"
    flip_at(path, path.stat().st_size - 100)
    for rows, is_good in ((slice(0, 2), True), (slice(4, 6), False)):
        try:
            with FirstReads(staged).checking():
                found = read_dataset(path, "data", shape=SHAPE, selection=(rows,))
            assert is_good
            assert np.array_equal(found, ARRAY[rows])
        except DataError:
            assert not is_good


def test_only_the_first_read_is_compared(staged: Path) -> None:
    path, checks = staged / "train/whole.npy", FirstReads(staged)
    with checks.checking():
        READERS["train/whole.npy"](path)
    flip_at(path, 500_000)
    with checks.checking():
        READERS["train/whole.npy"](path)
    with (
        pytest.raises(DataError),
        pickle.loads(pickle.dumps(checks)).checking(),
    ):  # another process has read nothing yet
        READERS["train/whole.npy"](path)


def test_outside_nothing_is_compared(staged: Path) -> None:
    path = staged / "train/whole.npy"
    flip(path)
    READERS["train/whole.npy"](path)
    with pytest.raises(DataError), FirstReads(staged).checking():
        READERS["train/whole.npy"](path)
    READERS["train/whole.npy"](path)


def test_where_nothing_was_staged_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "source")
    monkeypatch.setattr(first_reads, "load_records", None)
    checks = pickle.loads(pickle.dumps(FirstReads(tmp_path / "source")))
    assert not checks.applies
    with checks.checking():
        for name, read in READERS.items():
            read(tmp_path / "source" / name)


def test_a_folder_within_a_staged_one_and_behind_a_link(staged: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(staged / "train")
    flip(staged / "train/whole.npy")
    for folder in (staged / "train", tmp_path / "link"):
        with pytest.raises(DataError, match=r"whole\.npy: has CRC32C"), FirstReads(folder).checking():
            READERS["train/whole.npy"](folder / "whole.npy")


def test_files_that_staging_did_not_bring_are_read(staged: Path) -> None:
    write_array(staged / "mine.npy", ARRAY)
    with FirstReads(staged).checking():
        assert np.array_equal(read_array(staged / "mine.npy", shape=SHAPE, dtype=np.float32), ARRAY)


def test_a_file_that_is_about_to_be_written_again_is_not_compared(staged: Path) -> None:
    Manifest(staged).doubt([load_records(staged)["train/whole.npy"]])
    flip(staged / "train/whole.npy")
    with FirstReads(staged).checking():
        READERS["train/whole.npy"](staged / "train/whole.npy")


def test_of_an_earlier_version_files_are_compared_as_a_whole(staged: Path) -> None:
    path = manifest_path(staged)
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    path.write_text("\n".join(json.dumps({k: v for k, v in line.items() if k != "crc32c_256k"}) for line in lines))
    part = {"shape": SHAPE, "dtype": np.float32, "selection": [slice(0, 1)]}
    with FirstReads(staged).checking():
        assert np.array_equal(read_array(staged / "train/whole.npy", **part), ARRAY[:1])  # type: ignore[arg-type]
    flip_at(staged / "train/whole.npy", 1_100_000)
    with pytest.raises(DataError, match="has CRC32C"), FirstReads(staged).checking():
        read_array(staged / "train/whole.npy", **part)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1 << 60, 1 << 50, (1 << 63) - 1, -1, -(1 << 63)])
def test_a_size_that_nobody_has_takes_no_memory(staged: Path, size: int) -> None:
    forged = {"name": "other", "size": size, "crc32c": 1, "source": "other", "mtime_ns": 0}
    append_lines(manifest_path(staged), [json.dumps(forged), json.dumps(forged | {"name": "small.npy"})])
    checks = FirstReads(staged)
    tracemalloc.start()
    with checks.checking():
        READERS["train/whole.npy"](staged / "train/whole.npy")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20
    with pytest.raises(DataError, match=rf"has \d+ bytes where {size} landed"), checks.checking():
        READERS["small.npy"](staged / "small.npy")


@pytest.mark.parametrize("value", [5, None, "text", [5, None], {"a": 1}])
def test_a_bad_file_is_told_whatever_the_header_holds(staged: Path, value: object) -> None:
    path = manifest_path(staged)
    header, rest = path.read_text().split("\n", 1)
    found = json.loads(header)
    identities = [value] if not isinstance(value, dict) else []
    keys = ("source", "seed", "transform", "plain", "replicate_also", "contiguous")
    identities += [found["identity"] | {"placement": "shard", key: value} for key in keys]
    flip(staged / "train/whole.npy")
    for identity in identities:
        path.write_text(json.dumps(found | {"identity": identity}) + "\n" + rest)
        problem = r"whole\.npy: has CRC32C .* so it was damaged since; bring it again with `hpcbench stage "
        with pytest.raises(DataError, match=problem), FirstReads(staged).checking():
            READERS["train/whole.npy"](staged / "train/whole.npy")


def test_a_header_that_cannot_be_read_is_told_as_damage(staged: Path) -> None:
    for name, position in (("train/whole.npy", 1), ("plain.h5", 1), ("packed.tfrecord", 1)):
        flip_at(staged / name, position)
        problem = "so it was damaged since; bring it again with"
        with pytest.raises(DataError, match=problem), FirstReads(staged).checking():
            READERS[name](staged / name)


def test_the_command_that_brings_it_again(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    write_array(tmp_path / "source/small.npy", ARRAY[:1, :5])
    options = StageOptions(
        tmp_path / "source", str(tmp_path / "o u t"), "shard", transform="gunzip", plain=("auto",), seed=5,
        replicate_also=("small*",), include=("s*", "t*"), exclude=("*.txt",), follow_links=True, hidden=True, first=9,
    )  # fmt: skip
    stage(options, Alone(), quiet=True)
    assert words_again(tmp_path / "o u t") == [
        str(tmp_path / "source"), str(tmp_path / "o u t"), "--placement", "shard", "--seed", "5", "--transform",
        "gunzip", "--plain", "auto", "--replicate-also", "small*", "--include=s*", "--include=t*", "--exclude=*.txt",
        "--follow-links", "--hidden", "--first", "9",
    ]  # fmt: skip
    flip_at(tmp_path / "o u t/small.npy", 130)
    problem = r"--repair`, started on all nodes that share it, or train with --staging\.repair true"
    with pytest.raises(DataError, match=problem), FirstReads(tmp_path / "o u t").checking():
        READERS["train/whole.npy"](tmp_path / "o u t/small.npy")


def test_that_command_brings_just_what_was_chosen(tmp_path: Path) -> None:
    source, destination = tmp_path / "source", tmp_path / "out"
    make(source)
    write_array(source / ".hidden.npy", ARRAY)
    stage(StageOptions(source, str(destination), include=("*.npy",), exclude=("-*",), hidden=True), Alone(), quiet=True)
    before = contents(destination)
    flip(destination / ".hidden.npy")
    with pytest.raises(DataError) as caught, FirstReads(destination).checking():
        read_array(destination / ".hidden.npy", shape=SHAPE, dtype=np.float32)
    program, *words = shlex.split(str(caught.value).split("`")[1])
    assert program == "hpcbench"
    assert main(words) == 0
    assert contents(destination) == before
    assert set(before) == {".hidden.npy", "small.npy", "train/whole.npy"}


@pytest.mark.parametrize("value", [5, "text", [5], {"a": 1}])
def test_a_journal_that_tells_no_choice_gives_no_words(staged: Path, value: object) -> None:
    path = staged / ".staging/journal.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    path.write_text("".join(json.dumps(line | {"selection": value}) + "\n" for line in lines))
    assert words_again(staged)[1:] == [str(staged)]
    path.write_text("\0")
    assert words_again(staged)[1:] == [str(staged)]
