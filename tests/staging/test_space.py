"""Free space of a folder, on disk and in memory."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import psutil
import pytest

from staging.errors import DataError
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage
from staging.storage import space
from staging.storage.cgroup import memory_left
from staging.storage.space import (
    available_memory,
    bytes_in_blocks,
    check_space,
    filesystem_type,
    free_bytes,
    free_files,
)

T = TypeVar("T")
MIB = 1 << 20


def test_free_space_is_what_the_system_says_even_before_the_folder_exists(tmp_path: Path) -> None:
    free = free_bytes(tmp_path / "not" / "yet")
    assert free <= shutil.disk_usage(tmp_path).free * 1.05 + 2**26
    assert not (tmp_path / "not").exists()


def test_available_memory_agrees_with_psutil() -> None:
    limits = [left] if (left := memory_left()) is not None else []
    assert available_memory() == pytest.approx(min([psutil.virtual_memory().available, *limits]), rel=0.2)


def test_a_folder_in_memory_has_no_more_room_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "available_memory", lambda: 12_345)
    monkeypatch.setattr(space, "filesystem_type", lambda _: "tmpfs")
    assert free_bytes(tmp_path) == 12_345
    monkeypatch.setattr(space, "filesystem_type", lambda _: "xfs")
    assert free_bytes(tmp_path) > 12_345


def test_what_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_bytes(bytes(MIB))
    monkeypatch.setattr(space, "filesystem_type", lambda _: "tmpfs")
    options = StageOptions(tmp_path / "source", str(tmp_path / "to"), piece_bytes=1 << 16)
    monkeypatch.setattr(space, "available_memory", lambda: MIB)
    with pytest.raises(DataError, match=r"has 1.00 MiB free where staging needs [\d.]+ MiB"):
        stage(options, Alone(), quiet=True)
    assert not list((tmp_path / "to").glob("*"))
    monkeypatch.setattr(space, "available_memory", lambda: 64 * MIB)
    assert stage(options, Alone(), quiet=True).totals.bytes_landed == MIB


def test_what_is_given_back_does_not_exceed_what_the_job_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of files of a job before is charged to that one; to remove them gives this job no more."""
    monkeypatch.setattr(space, "filesystem_type", lambda _: "tmpfs")
    monkeypatch.setattr(space, "memory_left", lambda *_: 8 * MIB)
    check_space(tmp_path, 8 * MIB, 1, Alone(), (100 * MIB, 10))
    with pytest.raises(DataError, match=r"has 8\.00 MiB free where staging needs 9\.00 MiB"):
        check_space(tmp_path, 9 * MIB, 1, Alone(), (100 * MIB, 10))
    monkeypatch.setattr(space, "filesystem_type", lambda _: "xfs")
    check_space(tmp_path, 9 * MIB, 1, Alone(), (100 * MIB, 10))


def test_filesystem_types_agree_with_psutil() -> None:
    if not Path("/proc/self/mounts").exists():
        pytest.skip("needs /proc/self/mounts")
    assert filesystem_type(Path("/proc/self")) == "proc"
    for part in psutil.disk_partitions(all=True):
        if part.fstype in ("tmpfs", "proc", "sysfs") and Path(part.mountpoint).is_dir():
            assert filesystem_type(Path(part.mountpoint)) in {
                other.fstype for other in psutil.disk_partitions(all=True) if other.mountpoint == part.mountpoint
            }


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{content}\n")


def version_2(root: Path, group: str, shown: str = "/") -> None:
    """What the kernel says of a process in group ``group`` where the tree is shown from group ``shown`` on."""
    write(root / "proc/self/cgroup", f"0::{group}")
    write(
        root / "proc/self/mountinfo", f"31 23 0:28 {shown} /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate"
    )
    write(root / "proc/meminfo", f"MemTotal: 999999 kB\nMemFree: 7 kB\nMemAvailable: {1000 * 1024} kB")


def limit_2(root: Path, group: str, limit: int | str, use: int, cached: int = 0, active: int = 0) -> None:
    folder = root / "sys/fs/cgroup" / group
    write(folder / "memory.max", limit)
    write(folder / "memory.current", use)
    write(folder / "memory.stat", f"anon 5\ninactive_file {cached}\nactive_file {active}")


def limit_1(root: Path, group: str, limit: int, use: int, cached: int = 0) -> None:
    folder = root / "sys/fs/cgroup/memory" / group
    write(folder / "memory.limit_in_bytes", limit)
    write(folder / "memory.usage_in_bytes", use)
    write(folder / "memory.stat", f"inactive_file 1\ntotal_inactive_file {cached}")


def test_memory_is_what_the_narrowest_group_above_leaves(tmp_path: Path) -> None:
    version_2(tmp_path, "/slurm/job_7/step_0")
    limit_2(tmp_path, "slurm/job_7/step_0", "max", 100)
    assert memory_left(tmp_path) is None
    assert available_memory(tmp_path) == 1000 * MIB
    limit_2(tmp_path, "slurm/job_7", 600 * MIB, 500 * MIB, 50 * MIB)
    assert available_memory(tmp_path) == 150 * MIB
    limit_2(tmp_path, "slurm", 700 * MIB, 690 * MIB)
    assert available_memory(tmp_path) == 10 * MIB
    limit_2(tmp_path, "slurm/job_8", 1, 0)
    assert available_memory(tmp_path) == 10 * MIB
    limit_2(tmp_path, "slurm", 5000 * MIB, 0)
    limit_2(tmp_path, "slurm/job_7", 3000 * MIB, 0)
    assert available_memory(tmp_path) == 1000 * MIB  # the machine has no more


def test_files_that_were_read_more_than_once_leave_their_memory(tmp_path: Path) -> None:
    """After two epochs a dataset in memory is among the active files: the next attempt must not be refused."""
    version_2(tmp_path, "/slurm/job_7/step_1")
    limit_2(tmp_path, "slurm/job_7", 640 * MIB, 630 * MIB, 30 * MIB, 580 * MIB)
    assert memory_left(tmp_path) == 620 * MIB
    write(tmp_path / "proc/self/cgroup", "9:memory:/job")
    write(tmp_path / "proc/self/mountinfo", "32 23 0:29 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory")
    folder = tmp_path / "sys/fs/cgroup/memory/job"
    limit_1(tmp_path, "job", 640 * MIB, 630 * MIB, 30 * MIB)
    with (folder / "memory.stat").open("a") as stat:
        stat.write(f"total_active_file {580 * MIB}\n")
    assert memory_left(tmp_path) == 620 * MIB


def test_a_group_above_its_limit_has_nothing_left(tmp_path: Path) -> None:
    version_2(tmp_path, "/job")
    limit_2(tmp_path, "job", 10, 12)
    assert available_memory(tmp_path) == 0


@pytest.mark.parametrize(("group", "shown"), [("/docker/abc", "/docker/abc"), ("/docker/abc", "/"), ("/../../x", "/")])
def test_a_container_that_sees_a_part_of_the_groups(tmp_path: Path, group: str, shown: str) -> None:
    version_2(tmp_path, group, shown)
    limit_2(tmp_path, "", 600 * MIB, 500 * MIB)
    limit_2(tmp_path.parent, "", 1, 1)
    assert memory_left(tmp_path) == 100 * MIB


def test_version_1_and_both_at_once(tmp_path: Path) -> None:
    version_2(tmp_path, "/job")
    write(tmp_path / "proc/self/cgroup", "9:cpu,cpuacct:/elsewhere\n6:memory:/job/step\n0::/")
    write(
        tmp_path / "proc/self/mountinfo",
        "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 31 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    )
    limit_1(tmp_path, "job/step", 0x7FFFFFFFFFFFF000, 5)
    assert memory_left(tmp_path) is None
    limit_1(tmp_path, "job", 300 * MIB, 250 * MIB, 20 * MIB)
    limit_1(tmp_path, "", 0x7FFFFFFFFFFFF000, 5)
    assert memory_left(tmp_path) == 70 * MIB


def test_a_kernel_that_says_nothing(tmp_path: Path) -> None:
    assert available_memory(tmp_path) == 1 << 62
    assert memory_left(tmp_path) is None


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A filesystem in memory of 4 MiB and 50 files."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=51", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root to mount a filesystem")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_small_filesystem_in_memory(small: Path) -> None:
    assert filesystem_type(small) == "tmpfs"
    assert free_bytes(small / "new") == 4 * MIB
    assert free_files(small / "new") == 50
    check_space(small / "new", 4 * MIB, 50, Alone("n1"))
    with pytest.raises(DataError) as error:
        check_space(small / "new", 5 * MIB, 1, Alone("n1"))
    assert str(error.value) == (
        f"{small}/new: node n1 has 4.00 MiB free where staging needs 5.00 MiB; free some, or choose a larger place"
    )
    with pytest.raises(DataError, match="node n1 can take 50 more files where staging needs 51; free some"):
        check_space(small / "new", 1, 51, Alone("n1"))


def test_sizes_in_whole_blocks_are_what_the_filesystem_takes(small: Path) -> None:
    sizes = [1, 4095, 4096, 4097, 0, 100_000]
    before = os.statvfs(small)
    for number, size in enumerate(sizes):
        (small / str(number)).write_bytes(bytes(size))
    after = os.statvfs(small)
    taken = (before.f_bfree - after.f_bfree) * after.f_frsize
    assert bytes_in_blocks(np.array(sizes), small) == taken


class Several(Alone):
    """Ranks of several nodes, of which the others say what they are given to say, and no shared memory is left."""

    def __init__(self, node: str, local_rank: int, others: list[object]) -> None:
        super().__init__(node)
        self.place = replace(self.place, local_rank=local_rank)
        self.others = others
        self.said: list[object] = []

    def all_gather(self, value: T) -> list[T]:
        self.said.append(value)
        others = [""] * len(self.others) if isinstance(value, str) else self.others
        return [value, *others]  # type: ignore[list-item]


def said_by(node: str, folder: Path, need: int) -> object:
    world = Several(node, 0, [])
    check_space(folder, need, 1, world)
    return world.said[0]


def test_all_ranks_hear_of_the_node_that_lacks_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enough = said_by("n1", tmp_path, 0)
    monkeypatch.setattr(space, "free_bytes", lambda _: 3 << 30)
    short = replace(said_by("n2", tmp_path, 1), need=(1 << 40, 1), filesystem=("elsewhere", 1))  # type: ignore[type-var]
    for world in (Several("n1", 0, [None, short]), Several("n1", 1, [enough, short])):
        with pytest.raises(DataError) as error:
            check_space(tmp_path, 1, 1, world)
        assert str(error.value) == (
            f"{tmp_path}: node n2 has 3.00 GiB free where staging needs 1024.00 GiB; "
            "free some, or choose a larger place"
        )


def test_nodes_on_one_filesystem_need_their_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "free_bytes", lambda _: 3 * MIB)
    other = said_by("n2", tmp_path, 2 * MIB)
    check_space(tmp_path, MIB, 1, Several("n1", 0, [other]))
    with pytest.raises(DataError, match=r"has 3.00 MiB free where staging needs 4.00 MiB for the 2 nodes that share"):
        check_space(tmp_path, 2 * MIB, 1, Several("n1", 0, [other]))


def test_a_folder_that_cannot_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(space, "free_bytes", refuse)
    with pytest.raises(DataError, match=r"node n1 cannot look at it \(Permission denied\); choose another destination"):
        check_space(tmp_path, 1, 1, Alone("n1"))
