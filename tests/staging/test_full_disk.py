"""A destination that is nearly as large as what is staged: refused before anything moves, or large enough."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from staging.errors import InputError
from staging.ledger.journal import Journal
from staging.options import StageOptions
from staging.ranks.world import World
from staging.report import StagingReport
from staging.reshuffle import reshuffle
from staging.stage import stage as stage_on_ranks
from tests.staging.processes import ENVIRON, PROGRAMS, contents
from tests.staging.thread_world import run_ranks
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


def stage_here(options: StageOptions, world: World) -> StagingReport:
    """By ranks that are threads."""
    return stage_on_ranks(options, world, quiet=True)


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


def is_refused(step: Callable[[], object]) -> bool:
    """Whether a step that must end well is refused for lack of room."""
    try:
        step()
    except InputError as error:
        if "free some, or choose a larger place" not in str(error):
            raise
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("transform", [""])
def test_a_disk_with_few_pages_more_than_the_data_and_the_lines_of_many_ranks(
    source: Path, disk: Callable[[int, int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank records its command in the journal."""
    monkeypatch.setattr(sys, "argv", ["stage", *(f"--exclude=*.{number}" for number in range(500))])
    found = []
    for more in range(0, 91, 10):
        to = disk(40 + more, 1000)
        options = StageOptions(source, str(to / "to"))
        found.append(is_refused(partial(run_ranks, [16], partial(stage_here, options))))
        assert not found[-1] or list(to.iterdir()) == []
    assert found[0] is True
    assert found[-1] is False
    assert found == sorted(found, reverse=True)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
@pytest.mark.parametrize(("pages", "files", "fits"), [(1000, 5000, False), (3000, 1500, False), (3000, 5000, True)])
def test_small_members_of_archives_take_whole_blocks_and_files(
    suffix: str, pages: int, files: int, fits: bool, disk: Callable[[int, int], Path], tmp_path: Path
) -> None:
    """2,000 members of 100 bytes take 2,000 pages, where their archives have 2 MB; it ends at the start or well."""
    source = tmp_path / "source/train"
    source.mkdir(parents=True)
    for number in range(2):
        with tarfile.open(source / f"{number}.{suffix}", "w:gz" if suffix == "tar.gz" else "w") as archive:
            for member in range(1000):
                header = tarfile.TarInfo(f"{number}/{member:04d}.bin")
                header.size = 100
                archive.addfile(header, io.BytesIO(os.urandom(100)))
    packed = sum(path.stat().st_size for path in source.iterdir())
    transform = f"untar:expansion={-(-2 * 1024 * 1000 // packed)}" if suffix == "tar.gz" else "untar"
    assert all_or_nothing(source, disk(pages, files), transform) is fits


def fill(folder: Path, pages: int, files: int) -> None:
    """Take what a filesystem has but so many pages and files."""
    with (folder / "filler").open("wb") as file:
        free = os.statvfs(folder).f_bavail - pages
        assert free >= 0
        file.write(bytes(free * PAGE))
    for number in range(os.statvfs(folder).f_favail - files):
        os.link(folder / "filler", folder / f"filler{number}")


def unfill(folder: Path) -> None:
    """Give back what ``fill`` took."""
    for path in folder.glob("filler*"):
        path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("transform", [""])
@pytest.mark.parametrize("kind", ["pages", "files"])
def test_a_reshuffle_onto_a_disk_that_is_nearly_full(
    kind: str, source: Path, disk: Callable[[int, int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing moves until there is room for all that it takes."""
    monkeypatch.setattr(sys, "argv", ["reshuffle", "x" * 10_000])
    to = disk(400, 400)
    options = StageOptions(source, str(to / "{node}"), "shard")
    run_ranks([4, 4], lambda world: stage_here(options, world))
    before = contents(to)
    refused = 0
    for free in range(0, 300, 6):
        unfill(to)
        fill(to, *((free, 200) if kind == "pages" else (200, free)))
        if not is_refused(lambda: run_ranks([4, 4], lambda world: reshuffle(options, 1, world))):
            break
        refused += 1
        unfill(to)
        assert contents(to) == before
        assert all(Journal(to / f"node{node}").is_done() for node in range(2))
    else:
        pytest.fail("it is refused however much is free")
    assert refused > 0
    unfill(to)
    assert contents(to) != before


def killed_at_first_name(source: Path, destination: Path) -> subprocess.CompletedProcess[str]:
    """``python -m staging``, killed when the first file is whole and has no name yet."""
    command = [sys.executable, str(PROGRAMS / "killed_at_rename.py"), str(source), str(destination)]
    return subprocess.run(
        command, env=ENVIRON | {"KILLED_AT": "1"}, capture_output=True, text=True, check=False, timeout=60
    )


def test_what_a_killed_staging_left_is_room_for_the_next(disk: Callable[[int, int], Path], tmp_path: Path) -> None:
    """A file takes four fifths of the disk; where others have taken the rest meanwhile, the next one is refused."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_bytes(os.urandom(2000 * PAGE))
    to = disk(2500, 100)
    killed = killed_at_first_name(tmp_path / "source", to / "to")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert os.statvfs(to).f_bavail < 500
    fill(to, 0, 50)
    refused = stage(tmp_path / "source", to / "to", "")
    assert refused.returncode == 2
    assert "free some, or choose a larger place" in refused.stderr
    unfill(to)
    done = stage(tmp_path / "source", to / "to", "")
    assert done.returncode == 0, done.stderr
    assert contents(to / "to") == contents(tmp_path / "source")


def test_what_a_stopped_reshuffle_brought_is_room_for_the_next_staging(
    disk: Callable[[int, int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes share the disk, which can't hold what moves a second time."""
    (tmp_path / "source").mkdir()
    for number in range(16):
        (tmp_path / f"source/{number}").write_bytes(os.urandom(100 * PAGE))
    to = disk(4000, 1000)
    options = StageOptions(tmp_path / "source", str(to / "{node}"), "shard")
    run_ranks([1, 1], partial(stage_here, options))
    before, free = contents(to), os.statvfs(to).f_bavail

    def stop(*words: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("staging.reshuffle.settle", stop)
        with pytest.raises(KeyboardInterrupt):
            run_ranks([1, 1], lambda world: reshuffle(options, 1, world))
    arrived = free - os.statvfs(to).f_bavail
    assert arrived > 400
    fill(to, arrived - 200, 500)
    run_ranks([1, 1], partial(stage_here, replace(options, shuffle=1)))
    unfill(to)
    found = contents(to)
    assert {name.partition("/")[2] for name in found} == {name.partition("/")[2] for name in before}
    assert found != before
