"""Filesystems that are too small, or fill up midway: one line names the node, and the next staging goes on."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from staging.ranks.world import this_node
from tests.staging.faults.midway import exchange, expect_copy, expect_sound, midway, report
from tests.staging.processes import PLAIN, ended, make_tree, named, run, said, start, wait_until


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a filesystem of 8 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs to be root, to mount a small filesystem")
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount a small filesystem here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_filesystem_that_is_too_small(tmp_path: Path, small: Path) -> None:
    make_tree(tmp_path / "source", 100, largest=200_000)
    code, _, error = run([*PLAIN, tmp_path / "source", small / "out"])
    assert code == 2
    assert re.fullmatch(
        rf"staging: error: {small}/out: node \S+ has \S+ MiB free where staging needs \S+ MiB; free some.*",
        "".join(said(error)),
    )
    assert list(small.iterdir()) == []


@pytest.mark.mpi
def test_a_filesystem_that_is_too_small_on_one_node(tmp_path: Path, small: Path, mpiexec: str) -> None:
    make_tree(tmp_path / "source", 100, largest=200_000)
    (tmp_path / "node1").symlink_to(small)
    command = exchange(mpiexec, tmp_path / "source", tmp_path)
    command[command.index(tmp_path / "{node}")] = tmp_path / "{node}" / "out"
    code, _, error = run(command)
    assert code == 2
    assert len(said(error)) == 1
    assert f"staging: error: {small}/out: node node1 has " in said(error)[0]
    assert list(small.iterdir()) == []
    assert not (tmp_path / "node0").exists()


def test_a_filesystem_that_fills_up_midway(source: Path, tmp_path: Path, small: Path) -> None:
    process = midway(source, small / "out")
    fill(small / "foreign")
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1, error
    where = rf"staging: error: {this_node()}: {small}/out/\S+"
    assert re.match(rf"{where}: cannot be written \(No space left on device\)", said(error)[0])
    expect_sound(small / "out", source)
    (small / "foreign").unlink()
    code, _, error = run([*PLAIN, source, small / "out", "--report", tmp_path / "report.json"])
    assert code == 0, error
    expect_copy(small / "out", source)
    assert report(tmp_path / "report.json")["files_present"] > 0


def test_a_full_filesystem_is_cleaned(tmp_path: Path, small: Path) -> None:
    make_tree(tmp_path / "source", 3)
    assert run([*PLAIN, tmp_path / "source", small / "out"])[0] == 0
    fill(small / "foreign")
    code, said_of_it, error = run([*PLAIN, "--clean", small / "out"])
    assert (code, error) == (0, "")
    assert "removed 3 files" in said_of_it
    assert list((small / "out").iterdir()) == []


@pytest.mark.slow
@pytest.mark.mpi
def test_the_node_whose_filesystem_fills_up_is_named(source: Path, tmp_path: Path, small: Path, mpiexec: str) -> None:
    (tmp_path / "node1").symlink_to(small)
    command = exchange(mpiexec, source, tmp_path)
    command[command.index(tmp_path / "{node}")] = tmp_path / "{node}" / "out"
    process = start(command, PACE_S=0.05)
    wait_until(lambda: named(small / "out"))
    fill(small / "foreign")
    code, _, error = ended(process)
    assert code == 2
    assert len(said(error)) == 1, error
    start_of_line = rf"staging: aborted: rank 1 on node1: DataError: {small}/out/\S+: cannot be written \(No space"
    assert re.match(start_of_line, said(error)[0])
    (small / "foreign").unlink()
    assert run(command, PACE_S=0)[0] == 0
    expect_copy(small / "out", source)
    expect_copy(tmp_path / "node0" / "out", source)


def fill(path: Path) -> None:
    """Take all space that is left."""
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return
