"""Destinations that hold something already: another staging, somebody's files, or what a killed staging left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.staging.faults.midway import expect_copy, midway
from tests.staging.processes import PLAIN, contents, ended, run, said, unfinished


@pytest.mark.slow
def test_two_stagings_into_one_place(source: Path, tmp_path: Path) -> None:
    first = midway(source, tmp_path / "out")
    first.send_signal(signal.SIGSTOP)  # or it would be done first where the machine is busy
    os.waitid(os.P_PID, first.pid, os.WSTOPPED)
    code, _, error = run([*PLAIN, source, tmp_path / "out"])
    first.send_signal(signal.SIGCONT)
    assert code == 2
    assert len(said(error)) == 1
    assert f"{tmp_path}/out: another staging holds it (pid {first.pid} on node " in said(error)[0]
    assert ended(first)[0] == 0
    expect_copy(tmp_path / "out", source)


@pytest.mark.slow
def test_destinations_that_are_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("all my work")
    (tmp_path / "file").write_text("a file")
    before = contents(tmp_path)
    for destination, words in {
        tmp_path / "home": "is not empty and was not made by staging",
        tmp_path / "file": "is not a folder",
        source: "is the source itself",
        source / "below": "lies within the source",
        tmp_path: f"has the source {source} within it",
        tmp_path / "file" / "below": "Not a directory",
    }.items():
        code, _, error = run([*PLAIN, source, destination])
        assert code == 2
        assert len(said(error)) == 1
        assert said(error)[0].startswith("staging: error: ")
        assert words in said(error)[0]
    assert contents(tmp_path) == before


def test_only_own_leftovers_are_removed(source: Path, tmp_path: Path) -> None:
    process = midway(source, tmp_path / "out")
    process.kill()
    ended(process)
    out = tmp_path / "out"
    (out / "train" / ".00001.bin.0123456789abcd.part").write_bytes(b"half")
    mine = [out / "notes.part", out / "train" / ".video.mp4.part", out / ".00001.bin.tmp12345.part"]
    for path in mine:
        path.write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".x.0123456789abcd.part").write_bytes(b"half")
    (out / "link").symlink_to(tmp_path / "elsewhere")
    assert run([*PLAIN, source, out])[0] == 0
    assert unfinished(out / "train") + unfinished(out / "validation") == []
    assert [path.read_text() for path in mine] == ["mine"] * 3
    assert unfinished(tmp_path / "elsewhere") != []
