"""Sources that change while they are staged, and bytes that flip: one line names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crc32c import crc32c

from staging.ranks.world import Alone, this_node
from staging.source.index import write_index
from staging.source.walk import list_tree
from tests.params import slow_except
from tests.staging.faults.midway import LAST, exchange, expect_copy, expect_sound, midway
from tests.staging.processes import (
    OBEYING,
    PLAIN,
    contents,
    ended,
    journal,
    landed,
    named,
    run,
    said,
    start,
    unfinished,
    wait_until,
)

CHANGES = {
    "removed": (lambda path: path.unlink(), "vanished from the source"),
    "truncated": (lambda path: os.truncate(path, 10), "changed while it was staged"),
    "written": (lambda path: path.write_bytes(b"!" * path.stat().st_size), "was written to since it was listed"),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "is a pipe by now, not a file"),
    "no file any more": (lambda path: (path.unlink(), path.mkdir()), "cannot be read (Is a directory)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_a_source_file_changes_midway(source: Path, tmp_path: Path, change: str) -> None:
    alter, words = CHANGES[change]
    process = midway(source, tmp_path / "out")
    alter(source / LAST)
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1
    assert said(error)[0].startswith(f"staging: error: {this_node()}: {source / LAST}: ")
    assert words in said(error)[0]
    assert journal(tmp_path / "out")[-1]["outcome"] == "aborted"
    assert unfinished(tmp_path / "out") == []
    there = landed(tmp_path / "out")
    assert set(there) == set(named(tmp_path / "out"))
    assert LAST not in there


@pytest.mark.slow
def test_a_source_file_becomes_unreadable(source: Path, tmp_path: Path) -> None:
    process = midway(source, tmp_path / "out", before=OBEYING)
    (source / LAST).chmod(0)
    code, _, error = ended(process)
    assert (code, len(said(error))) == (2, 1)
    assert f"{source / LAST}: cannot be read (Permission denied)" in said(error)[0]


@pytest.mark.slow
@pytest.mark.mpi
@pytest.mark.parametrize("change", slow_except(["truncated"], ["removed", "truncated", "pipe"]))
def test_a_source_file_changes_midway_on_one_rank_of_several(
    source: Path, tmp_path: Path, mpiexec: str, change: str
) -> None:
    process = start(exchange(mpiexec, source, tmp_path), PACE_S=0.05)
    nodes = [tmp_path / "node0", tmp_path / "node1"]
    wait_until(lambda: all(named(node) for node in nodes))
    CHANGES[change][0](source / LAST)  # the second node reads the second half
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1, error
    assert said(error)[0].startswith(f"staging: aborted: rank 1 on node1: DataError: {source / LAST}: ")
    for node in nodes:
        end = journal(node)[-1]
        assert end["outcome"] == "aborted"
        assert LAST in end["reason"]
        expect_sound(node, source)


def test_a_byte_that_flips_in_the_source(source: Path, tmp_path: Path) -> None:
    index = tmp_path / "dataset.index"
    listing = list_tree(source, Alone()).listing
    for number, name in enumerate(listing.names):
        listing.checksums[number] = crc32c((source / name).read_bytes())
    write_index(index, listing)
    flip(source / LAST)
    code, _, error = run([*PLAIN, source, tmp_path / "out", "--index", index])
    assert code == 2
    assert len(said(error)) == 1
    assert f"{source / LAST}: has CRC32C" in said(error)[0]
    assert "where the index says" in said(error)[0]
    assert LAST not in contents(tmp_path / "out")
    # Without checksums to compare with, a flipped byte leaves no trace.
    assert run([*PLAIN, source, tmp_path / "other"])[0] == 0
    expect_copy(tmp_path / "other", source)


def test_a_byte_that_flips_at_the_destination(source: Path, tmp_path: Path) -> None:
    command = [*PLAIN, source, tmp_path / "out"]
    assert run(command)[0] == 0
    flip(tmp_path / "out" / LAST)
    assert run(command)[0] == 0
    code, _, error = run([*command, "--verify", "reread"])
    assert code == 2
    assert len(said(error)) == 1
    assert f"{tmp_path}/out: does not hold what landed there: {LAST}: has CRC32C" in said(error)[0]
    (tmp_path / "out" / LAST).unlink()
    assert run([*command, "--verify", "reread"])[0] == 0
    expect_copy(tmp_path / "out", source)


def flip(path: Path) -> None:
    """Flip one bit in the middle of a file; size and times stay."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 8
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
