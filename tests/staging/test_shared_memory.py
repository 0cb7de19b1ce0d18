"""Shared memory of killed processes is found, that of living ones is not, and a full node is told of it."""

from __future__ import annotations

import mmap
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from staging.errors import DataError
from staging.ranks.world import Alone
from staging.storage import space
from staging.storage.shared_memory import SEGMENTS, SHARED_MEMORY, left_over
from tests.staging.thread_world import run_ranks

MIB = 1 << 20


def segment(path: Path, mib: int = 1) -> Path:
    """A file with blocks of its own."""
    path.write_bytes(b"x" * (mib * MIB))
    return path


def test_only_segments_that_nobody_has_open_are_left_over(tmp_path: Path) -> None:
    assert left_over(tmp_path) is None
    segment(tmp_path / "dataset.tar", 9)
    (tmp_path / "mpich_shm_folder").mkdir()
    (tmp_path / "mpich_shm_link").symlink_to(tmp_path / "dataset.tar")
    assert left_over(tmp_path) is None
    segment(tmp_path / "mpich_shm_12ab_0", 2)
    segment(tmp_path / "vader_segment.node1.73dc.2", 3)
    mapped, opened = segment(tmp_path / "sm_segment.node1.0"), segment(tmp_path / "psm3_shm.996")
    with mapped.open("r+b") as file:
        memory = mmap.mmap(file.fileno(), MIB)
    with opened.open("rb"):
        found = left_over(tmp_path)
    assert found is not None
    assert (found.files, found.bytes, found.example) == (2, 5 * MIB, "vader_segment.node1.73dc.2")
    assert str(found) == "5 MiB of shared memory of processes that are gone (vader_segment.node1.73dc.2 and 1 more)"
    memory.close()
    found = left_over(tmp_path)
    assert found is not None
    assert found.files == 4


def test_a_machine_without_such_a_place_has_none(tmp_path: Path) -> None:
    assert left_over(tmp_path / "absent") is None
    segment(tmp_path / "torch_1")
    found = left_over(tmp_path, tmp_path / "no-proc")
    assert found is not None
    assert found.files == 1


def test_only_root_is_told_of_segments_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it may look at all processes, which root of a container may not."""
    owner = segment(tmp_path / "mpich_shm_1", 2).stat().st_uid or 12345
    if os.getuid() == 0:
        os.chown(tmp_path / "mpich_shm_1", owner, -1)
    (tmp_path / "proc" / "1" / "fd").mkdir(parents=True)
    (tmp_path / "proc" / "1" / "maps").write_text("")
    namespace = tmp_path / "proc" / "self" / "ns" / "pid"
    namespace.parent.mkdir(parents=True)
    namespace.symlink_to("pid:[4026531836]")

    def found_by(user: int) -> bool:
        monkeypatch.setattr(os, "getuid", lambda: user)
        return left_over(tmp_path, tmp_path / "proc") is not None

    assert [found_by(user) for user in (owner, owner + 1, 0)] == [True, False, True]

    def refused(path: Path, **_: object) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refused)
        assert not found_by(0)
    namespace.unlink()
    namespace.symlink_to("pid:[4026532201]")
    assert [found_by(user) for user in (owner, 0)] == [True, False]


@pytest.fixture
def named() -> Iterator[str]:
    """A segment of a killed process, in the true place."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        pytest.skip(f"{SHARED_MEMORY} cannot be written to")
    name = f"mpich_shm_{secrets.token_hex(4)}_0"
    program = (
        "import mmap, os, sys, time\n"
        f"file = open('{SHARED_MEMORY / name}', 'w+b'); file.truncate({64 * MIB})\n"
        f"memory = mmap.mmap(file.fileno(), {64 * MIB}); memory[:] = bytes({64 * MIB}); file.close()\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    before = left_over()
    assert before is None or before.example != name
    process.kill()
    process.wait()
    yield name
    (SHARED_MEMORY / name).unlink()


def test_what_a_killed_process_leaves_is_told_where_there_is_no_room(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named
    monkeypatch.setattr(space, "filesystem_type", lambda folder: "tmpfs")
    with pytest.raises(DataError, match=rf"{SHARED_MEMORY} holds \d+ MiB of shared memory of processes that are gone"):
        space.check_space(tmp_path, 1 << 55, 1, Alone("here"))
    monkeypatch.setattr(space, "filesystem_type", lambda folder: "ext4")
    with pytest.raises(DataError) as caught:
        space.check_space(tmp_path, 1 << 55, 1, Alone("here"))
    assert "shared memory" not in str(caught.value)


def test_it_is_told_where_only_the_sum_of_nodes_does_not_fit(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert named
    monkeypatch.setattr(space, "filesystem_type", lambda folder: "tmpfs")
    monkeypatch.setattr(space, "free_bytes", lambda folder: 3 * MIB)
    monkeypatch.setattr(space, "available_memory", lambda: 3 * MIB)
    run_ranks([1, 2], lambda world: space.check_space(tmp_path, MIB, 1, world))
    with pytest.raises(DataError, match=r"3.00 MiB free where staging needs 4.00 MiB for the 2 nodes that ") as told:
        run_ranks([1, 2], lambda world: space.check_space(tmp_path, 2 * MIB, 1, world))
    assert f"{SHARED_MEMORY} holds " in str(told.value)


def test_it_is_told_where_files_are_too_many(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are files: removing them makes room for others, on their own filesystem alone."""
    assert named
    monkeypatch.setattr(space, "filesystem_type", lambda folder: "tmpfs")
    monkeypatch.setattr(space, "free_files", lambda folder: 7)
    with pytest.raises(DataError, match=rf"more files where staging needs 8; {SHARED_MEMORY} holds \d+ MiB of shared"):
        space.check_space(SHARED_MEMORY / "to", MIB, 8, Alone("here"))
    if tmp_path.stat().st_dev != SHARED_MEMORY.stat().st_dev:
        with pytest.raises(DataError, match="more files where staging needs 8; free some"):
            space.check_space(tmp_path, MIB, 8, Alone("here"))


def test_no_name_of_a_dataset_is_taken_for_a_segment() -> None:
    assert not any(pattern.startswith("*") for pattern in SEGMENTS)
