"""A destination that is nearly as large as what is staged: refused before anything moves, or large enough."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.staging.transforming import cosmoflow

PAGE = 4096
COUNTS = np.arange(8 * 8 * 8 * 4, dtype=np.int16).reshape(8, 8, 8, 4)
"""A sample of CosmoFlow of one page, with which its header takes two."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int, int], Path]]:
    """Makes a filesystem in memory of so many pages and files; only root can."""
    mounted: list[Path] = []

    def mount(pages: int, files: int) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        options = f"size={pages * PAGE},nr_inodes={files}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("cannot mount a filesystem here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def stage(source: Path, destination: Path, transform: str) -> subprocess.CompletedProcess[str]:
    """``python -m staging``."""
    command = [sys.executable, "-m", "staging", str(source), str(destination), "--transform", transform]
    command = command if transform else command[:-2]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def all_or_nothing(source: Path, disk: Path, transform: str) -> bool:
    """Stage, which must end well or leave nothing; whether it ended well."""
    done = stage(source, disk / "to", transform)
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 2:
        assert "free some, or choose a larger place" in done.stderr
        assert list(disk.iterdir()) == []
    return done.returncode == 0


@pytest.fixture(params=["", "tfrecord-to-npy"])
def transform(request: pytest.FixtureRequest) -> str:
    """What is done to the files."""
    return str(request.param)


@pytest.fixture
def source(tmp_path: Path, transform: str) -> Path:
    """Forty files in four folders, which become forty of a page, or eighty: forty of two pages and forty of one."""
    for number in range(40):
        path = tmp_path / f"source/part{number % 4}/{number:04d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(cosmoflow(tmp_path, COUNTS) if transform else os.urandom(PAGE))
    return tmp_path / "source"


@pytest.mark.slow
def test_a_disk_with_few_pages_more_than_the_data(
    source: Path, transform: str, disk: Callable[[int, int], Path]
) -> None:
    pages = 120 if transform else 40
    found = [all_or_nothing(source, disk(pages + more, 1000), transform) for more in range(0, 49, 6)]
    assert found[0] is False
    assert found[-1] is True
    assert found == sorted(found), "from some size on it fits"


@pytest.mark.slow
def test_a_disk_with_few_files_more_than_the_data(
    source: Path, transform: str, disk: Callable[[int, int], Path]
) -> None:
    files = 80 if transform else 40
    found = [all_or_nothing(source, disk(1000, files + more), transform) for more in range(1, 32, 6)]
    assert found[0] is False
    assert found[-1] is True
    assert found == sorted(found)
