"""A batch names files after they are durable, never before, and loses none."""

import gc
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.ledger import durable_batch as batches
from staging.ledger.durable_batch import DurableBatch, sync_filesystem
from staging.ledger.jsonl import read_lines
from staging.ledger.manifest import Manifest
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage

IDENTITY = {"source": "/data/set"}


def landed(name: str, size: int = 3) -> Landed:
    return Landed(name, size, 11, name, 7)


def test_a_batch_is_flushed_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    named_at_sync = []
    monkeypatch.setattr(batches, "sync_filesystem", lambda *_: named_at_sync.append(len(manifest.records())))
    batch = DurableBatch(manifest, tmp_path, files=3)
    for name in "abcdefg":
        batch.add([landed(name)])
    assert [file.name for file in manifest.records()] == list("abcdef")
    batch.commit()
    batch.commit()
    assert named_at_sync == [0, 3, 6]
    assert [file.name for file in manifest.records()] == list("abcdefg")
    assert batch.syncs == 3


def test_a_batch_is_committed_by_bytes_and_by_time(tmp_path: Path) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    by_bytes = DurableBatch(manifest, tmp_path, size=10)
    by_bytes.add([landed("a", 9)])
    assert len(manifest.records()) == 0
    by_bytes.add([landed("b", 1)])
    assert len(manifest.records()) == 2
    by_time = DurableBatch(manifest, tmp_path, seconds=0.05)
    by_time.add([landed("c")])
    time.sleep(0.06)
    by_time.add([])
    assert len(manifest.records()) == 3
    assert 0 < by_bytes.sync_seconds < 60


def test_threads_of_a_batch_lose_nothing(tmp_path: Path) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    batch = DurableBatch(manifest, tmp_path, files=50)

    def work(thread: int) -> None:
        for number in range(200):
            batch.add([landed(f"{thread}/{number}")])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batch.commit()
    assert len(list(read_lines(manifest.path))) == 800
    assert len(manifest.records()) == 800
    assert batch.syncs <= 17


def test_a_filesystem_that_lost_data_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        def syncfs(self, _: int) -> int:
            return -1

    monkeypatch.setattr("staging.ledger.durable_batch.ctypes.CDLL", lambda *_, **__: Library())
    monkeypatch.setattr("staging.ledger.durable_batch.ctypes.get_errno", lambda: 5)
    manifest = Manifest.open(tmp_path, IDENTITY)
    batch = DurableBatch(manifest, tmp_path)
    batch.add([landed("a")])
    with pytest.raises(DataError, match=r"could not store what was written \(Input/output error\); check the disk"):
        batch.commit()
    assert len(manifest.records()) == 0


def test_what_was_lost_is_told_once_and_nothing_more_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system told of it at the first flush; the next one succeeds, and the pages are gone all the same."""
    asked: list[int] = []

    class Library:
        def syncfs(self, descriptor: int) -> int:
            asked.append(descriptor)
            return -1 if len(asked) == 1 else 0

    monkeypatch.setattr("staging.ledger.durable_batch.ctypes.CDLL", lambda *_, **__: Library())
    manifest = Manifest.open(tmp_path, IDENTITY)
    batch = DurableBatch(manifest, tmp_path, files=2)
    batch.add([landed("a")])
    with pytest.raises(DataError, match="could not store what was written"):
        batch.add([landed("b")])
    batch.add([landed("c")])
    for commit in (batch.commit, lambda: batch.add([landed("d")])):
        with pytest.raises(DataError, match="its filesystem has lost what was written; check the disk"):
            commit()
    batch.commit_within(10)
    assert len(manifest.records()) == 0


def test_each_flush_is_of_the_folder_as_it_was_opened_before_anything_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells those who had the filesystem open, also of what it has told others meanwhile."""
    manifest = Manifest.open(tmp_path, IDENTITY)
    batch = DurableBatch(manifest, tmp_path)
    monkeypatch.delattr("staging.ledger.durable_batch.open_folder")
    asked: list[int] = []

    class Library:
        def syncfs(self, descriptor: int) -> int:
            asked.append(descriptor)
            return 0

    monkeypatch.setattr("staging.ledger.durable_batch.ctypes.CDLL", lambda *_, **__: Library())
    for name in "ab":
        batch.add([landed(name)])
        batch.commit()
    assert len(asked) == 2
    assert all(os.path.samestat(os.fstat(number), tmp_path.stat()) for number in asked)
    batch.close()
    assert not Path(f"/proc/self/fd/{asked[0]}").exists()


def test_while_a_commit_is_under_way_the_filesystem_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that is closed may soon be another file's, and what is flushed would be another filesystem."""
    batch = DurableBatch(Manifest.open(tmp_path, IDENTITY), tmp_path)
    batch.add([landed("a")])
    began, goes_on = threading.Event(), threading.Event()
    seen: list[bool] = []

    class Library:
        def syncfs(self, descriptor: int) -> int:
            began.set()
            goes_on.wait(10)
            seen.append(os.path.samestat(os.fstat(descriptor), tmp_path.stat()))
            return 0

    monkeypatch.setattr("staging.ledger.durable_batch.ctypes.CDLL", lambda *_, **__: Library())
    thread = threading.Thread(target=batch.commit)
    thread.start()
    assert began.wait(10)
    batch.close()
    goes_on.set()
    thread.join()
    assert seen == [True]


@pytest.mark.parametrize("fails", [False, True])
def test_a_staging_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Also before its objects are collected: a job may unmount, or end for, what it staged to."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("a")
    if fails:
        monkeypatch.setattr(Manifest, "append", lambda *_: (_ for _ in ()).throw(DataError("a", "b", "c")))
    gc.disable()
    try:
        with pytest.raises(DataError) if fails else nullcontext():
            stage(StageOptions(tmp_path / "source", str(tmp_path / "out")), Alone(), quiet=True)
        targets = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
        assert [target for target in targets if target.startswith(str(tmp_path))] == []
    finally:
        gc.enable()


def test_pages_that_a_disk_loses_behind_the_back_of_a_batch_are_told(lossy: Path) -> None:
    """A real filesystem on a disk that is full at 24 MiB of 120; another program is told of the loss first."""
    manifest = Manifest.open(lossy, IDENTITY)
    batch = DurableBatch(manifest, lossy)
    batch.add([landed("before")])
    batch.commit()
    (lossy / "file").write_bytes(os.urandom(40 << 20))
    other = subprocess.run(["sync", "-f", str(lossy)], capture_output=True, check=False)
    assert other.returncode != 0
    sync_filesystem(lossy)  # with a descriptor of now there is nothing to tell
    batch.add([landed("file")])
    with pytest.raises(DataError, match="could not store what was written"):
        batch.commit()


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[Path]:
    """An ext4 of 120 MiB in a file of a tmpfs of 24 MiB."""
    memory, place = tmp_path / "memory", tmp_path / "place"
    memory.mkdir()
    place.mkdir()
    image = memory / "image"
    steps = (
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(memory)],
        ["truncate", "-s", "120M", str(image)],
        ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image)],
        ["mount", "-o", "loop", str(image), str(place)],
    )
    try:
        for step in steps:
            if shutil.which(step[0]) is None or subprocess.run(step, capture_output=True, check=False).returncode != 0:
                pytest.skip(f"needs {step[0]}, and the right to mount a file")
        yield place
    finally:
        for folder in (place, memory):
            subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def test_without_syncfs_all_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr("staging.ledger.durable_batch.ctypes.CDLL", lambda *_, **__: object())
    monkeypatch.setattr("staging.ledger.durable_batch.os.sync", lambda: called.append("sync"))
    sync_filesystem(tmp_path)
    assert called == ["sync"]
