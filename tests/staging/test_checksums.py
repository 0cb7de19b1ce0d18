"""Checksums of parts and of the beginnings of files: as they land, in the manifest, when a file changes its node."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from staging.checksums import BLOCK_BYTES, RunningChecksum, checksums, checksums_of_parts, combined, inner_blocks
from staging.landing.file_sink import FileSinkMaker
from staging.ledger.manifest import Manifest, load_records
from staging.ledger.records import BLOCKS
from staging.options import StageOptions
from tests.staging.opened import opened
from tests.staging.test_reshuffle import shuffle_all
from tests.staging.test_stage import stage_all

LARGE = memoryview(random.Random(1).randbytes(2 * BLOCK_BYTES + 1000))


def expected(data: memoryview) -> bytes:
    ends = range(BLOCK_BYTES, len(data), BLOCK_BYTES)
    return np.array([crc32c(data[:end]) for end in ends], ">u4").tobytes()


@settings(max_examples=30)
@given(st.integers(0, len(LARGE)), st.lists(st.integers(0, len(LARGE)), max_size=6))
def test_any_pieces_give_the_checksums_of_the_whole(size: int, cuts: list[int]) -> None:
    data, running = LARGE[:size], RunningChecksum()
    bounds = [0, *sorted(min(cut, size) for cut in cuts), size]
    for start, stop in pairwise(bounds):
        running.update(data[start:stop])
    assert (running.crc, running.size, running.blocks) == (crc32c(data), size, expected(data))
    assert checksums(data) == (crc32c(data), expected(data))


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 0), (BLOCK_BYTES, 0), (BLOCK_BYTES + 1, 1), (1 << 24, 63)])
def test_a_file_has_so_many_borders_within(size: int, count: int) -> None:
    assert inner_blocks(size) == count
    assert len(expected(memoryview(bytes(size)))) == 4 * count


def test_files_land_with_the_checksums_of_their_blocks(tmp_path: Path) -> None:
    make = FileSinkMaker()
    sink = make(opened(tmp_path), "a", len(LARGE), 0)
    sink.write(LARGE[:1000])
    sink.write(LARGE[1000:])
    whole = make.write_whole(opened(tmp_path), "b", LARGE, 0)
    assert [landed.blocks for landed in (*sink.close(), whole)] == [expected(LARGE)] * 2
    assert make.write_whole(opened(tmp_path), "c", LARGE[:BLOCK_BYTES], 0).blocks == b""
    assert FileSinkMaker(checksum=False).write_whole(opened(tmp_path), "d", LARGE, 0).blocks == b""


def test_the_manifest_keeps_them_for_files_larger_than_a_block(tmp_path: Path) -> None:
    manifest, make = Manifest.open(tmp_path, {}), FileSinkMaker()
    contents = {"large": LARGE, "small": LARGE[:9], "again": LARGE[7:]}
    landed = [make.write_whole(opened(tmp_path), name, data, 0) for name, data in contents.items()]
    manifest.append([make.write_whole(opened(tmp_path), "again", LARGE[5:], 0)])
    manifest.append(landed)
    lines = [json.loads(line) for line in filter(None, manifest.path.read_text().splitlines())][2:]
    assert [line.get(BLOCKS) for line in lines] == [expected(LARGE).hex(), None, expected(LARGE[7:]).hex()]
    assert [line["crc32c"] for line in lines] == [crc32c(data) for data in contents.values()]
    records = load_records(tmp_path)
    assert [records[file.name] for file in landed] == landed


@pytest.mark.parametrize("text", [None, 7, "", "00", "g" * 16, "é" * 16, "00 " * 5 + "0", ["00000000"] * 2])
def test_blocks_that_are_none_are_none(tmp_path: Path, text: object) -> None:
    manifest = Manifest.open(tmp_path, {})
    line = {"name": "a", "size": len(LARGE), "crc32c": 1, "source": "a", "mtime_ns": 0, BLOCKS: text}
    with manifest.path.open("a") as file:
        file.write(f"\n{json.dumps(line)}")
    assert load_records(tmp_path)["a"].blocks == b""


def test_a_file_that_changes_its_node_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for number in range(6):
        (tmp_path / "source" / f"{number}.npy").write_bytes(LARGE[number:])
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), "shard")
    stage_all([1, 1], options)
    assert shuffle_all([1, 1], options, 1).files > 0
    found = [file for node in (0, 1) for file in load_records(tmp_path / f"node{node}")]
    assert {file.name: file.blocks for file in found} == {
        f"{number}.npy": expected(LARGE[number:]) for number in range(6)
    }


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_of_two_parts(first: bytes, second: bytes) -> None:
    found = combined(crc32c(first), crc32c(second), len(second))
    assert found == crc32c(first + second)


def test_of_a_long_second_part() -> None:
    first, second = b"head", bytes(50_000_001)
    found = combined(crc32c(first), crc32c(second), len(second))
    assert found == crc32c(second, crc32c(first))


def test_of_the_published_example() -> None:
    """RFC 3720, appendix B.4: 32 bytes of zeros, here as 20 and 12 of them."""
    assert combined(crc32c(bytes(20)), crc32c(bytes(12)), 12) == 0x8A9136AA


def test_nothing_more_changes_nothing() -> None:
    assert combined(0x1234, 0, 0) == 0x1234


@settings(max_examples=30)
@given(st.integers(0, len(LARGE)), st.lists(st.integers(0, len(LARGE)), max_size=6))
def test_of_parts_that_were_summed_apart(size: int, cuts: list[int]) -> None:
    data = LARGE[:size]
    bounds = sorted({0, *(min(cut, size) for cut in cuts), *range(0, size, BLOCK_BYTES), size})
    parts = [(stop - start, crc32c(data[start:stop])) for start, stop in pairwise(bounds)]
    assert checksums_of_parts(parts) == checksums(data)
