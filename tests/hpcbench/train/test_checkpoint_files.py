"""Checkpoints as files: their names, and hostile ones."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from hpcbench.results.checkpoint_files import complete, is_refusal, marker, new_path, resume_advice
from hpcbench.train import checkpoint_io
from hpcbench.train.checkpoint_io import Checkpoint, load_newest, save
from hpcbench.train.checkpoint_writer import CheckpointWriter
from staging.errors import InputError
from tests.hpcbench.train.test_checkpoint_writer import ALONE


def test_hostile_checkpoints_are_one_line(tmp_path: Path) -> None:
    """A marker that vouches for code, for nothing, or is no file at all."""

    class Code:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    path = new_path(tmp_path, 0, 1)
    for content in (Code(), [1], {"schema": 1, "more": 2}, {"model": {}}):
        torch.save(content, path)
        digest = checkpoint_io.hashlib.blake2b(path.read_bytes()).hexdigest()
        marker(path).write_text(json.dumps({"blake2b": digest}))
        with pytest.raises(InputError, match=r"epoch-0000-step-00000001.pt: damaged checkpoint .*start again with"):
            load_newest(tmp_path)
    assert not (tmp_path / "executed").exists()
    torch.save({"schema": 99}, path)
    digest = checkpoint_io.hashlib.blake2b(path.read_bytes()).hexdigest()
    marker(path).write_text(json.dumps({"blake2b": digest}))
    with pytest.raises(InputError, match="checkpoint of another version of hpcbench"):
        load_newest(tmp_path)
    for text in ("", "[]", "{}"):
        marker(path).write_text(text)
        with pytest.raises(InputError, match="damaged checkpoint") as refused:
            load_newest(tmp_path)
        assert is_refusal(str(refused.value))
    for each in (marker(path), path):
        each.unlink()
        os.mkfifo(each)
        with pytest.raises(InputError, match=f"{each.name}: no plain file; start again with"):
            load_newest(tmp_path)


def test_the_checkpoint_before_is_advised_only_where_there_is_one(tmp_path: Path) -> None:
    newest = [save(Checkpoint({}, {}, {}, {"epoch": 0, "step": step}, {}), tmp_path, 2) for step in (1, 2)][-1]
    newest.write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"checksum differs\); remove it and its .json to resume from the one before"):
        load_newest(tmp_path)
    for path in (newest, marker(newest)):
        path.unlink()
    (only,) = complete(tmp_path)
    only.write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"checksum differs\); start again with another --run-dir, since this run has"):
        load_newest(tmp_path)


def test_a_checkpoint_that_the_disk_does_not_give_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Checkpoint({}, {}, {}, {"epoch": 0, "step": 1}, {}), tmp_path, 1)

    def unreadable(path: Path, name: str) -> int:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(checkpoint_io, "checksum_of", unreadable)
    with pytest.raises(InputError, match=r"cannot be read \(Input/output error\); try again") as found:
        load_newest(tmp_path)
    assert not is_refusal(str(found.value))


def test_a_step_that_is_saved_again_is_the_newest_however_often(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, 1, ALONE)
    for number in range(1, 13):
        writer.save(Checkpoint({"w": torch.full((2,), float(number))}, {}, {}, {"epoch": 3, "step": 7}, {}))
        writer.wait()
        found = load_newest(tmp_path)
        assert found is not None
        assert found.model["w"][0].item() == number
        assert len(complete(tmp_path)) == 1


def test_names_are_new_and_in_the_order_of_steps(tmp_path: Path) -> None:
    assert resume_advice(tmp_path) == "start again with another --run-dir, since this run has no checkpoint yet"
    made = []
    for epoch, step in [(9998, 1), (10000, 5), *[(10000, 12)] * 11, (10000, 123456789)]:
        path = new_path(tmp_path, epoch, step)
        path.touch()
        marker(path).touch()
        made.append(path)
    assert len(set(made)) == len(made)
    for path in ("epoch-x-step-1.pt", "epoch-0001-step-00000009.pt", "epoch-0002-step-00000001.json"):
        (tmp_path / path).touch()
    assert complete(tmp_path) == made


def test_a_large_file_reaches_the_disk_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that bytes move while a slow disk takes it; what is written is the same."""
    sizes, path = [], tmp_path / "file"
    sync = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(checkpoint_io, "SYNC_BYTES", 1000)
    data = bytes(range(256)) * 10
    file = checkpoint_io.ChecksummedFile(path)
    for start, end in ((0, 10), (10, 990), (990, 1005), (1005, 2560)):
        assert file.write(data[start:end]) == end - start
    assert file.finish() == checkpoint_io.checksum_of(path, "crc32c")
    assert path.read_bytes() == data
    assert sizes == [1000, 2000]
