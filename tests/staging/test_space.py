"""Free space of a folder, on disk and in memory."""

import shutil
from pathlib import Path

import psutil
import pytest

from staging import space
from staging.space import available_memory, filesystem_type, free_bytes


def test_free_space_is_what_the_system_says_even_before_the_folder_exists(tmp_path: Path) -> None:
    free = free_bytes(tmp_path / "not" / "yet")
    assert free <= shutil.disk_usage(tmp_path).free * 1.05 + 2**26
    assert not (tmp_path / "not").exists()


def test_available_memory_agrees_with_psutil() -> None:
    assert available_memory() == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_a_folder_in_memory_has_no_more_room_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "available_memory", lambda: 12_345)
    monkeypatch.setattr(space, "filesystem_type", lambda _: "tmpfs")
    assert free_bytes(tmp_path) == 12_345
    monkeypatch.setattr(space, "filesystem_type", lambda _: "xfs")
    assert free_bytes(tmp_path) > 12_345


def test_filesystem_types_agree_with_psutil() -> None:
    if not Path("/proc/self/mounts").exists():
        pytest.skip("needs /proc/self/mounts")
    assert filesystem_type(Path("/proc/self")) == "proc"
    for part in psutil.disk_partitions(all=True):
        if part.fstype in ("tmpfs", "proc", "sysfs") and Path(part.mountpoint).is_dir():
            assert filesystem_type(Path(part.mountpoint)) in {
                other.fstype for other in psutil.disk_partitions(all=True) if other.mountpoint == part.mountpoint
            }
