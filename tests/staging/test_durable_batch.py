"""A batch names files after they are durable, never before, and loses none."""

import threading
import time
from pathlib import Path

import pytest

from staging.errors import DataError
from staging.landing.sinks import Landed
from staging.ledger import durable_batch as batches
from staging.ledger.durable_batch import DurableBatch, sync_filesystem
from staging.ledger.jsonl import read_lines
from staging.ledger.manifest import Manifest

IDENTITY = {"source": "/data/set"}


def landed(name: str, size: int = 3) -> Landed:
    return Landed(name, size, 11, name, 7)


def test_a_batch_is_flushed_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest.open(tmp_path, IDENTITY)
    named_at_sync = []
    monkeypatch.setattr(batches, "sync_filesystem", lambda _: named_at_sync.append(len(manifest.records())))
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


def test_without_syncfs_all_is_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr("staging.ledger.durable_batch.ctypes.CDLL", lambda *_, **__: object())
    monkeypatch.setattr("staging.ledger.durable_batch.os.sync", lambda: called.append("sync"))
    sync_filesystem(tmp_path)
    assert called == ["sync"]
