"""Lines that other processes' lines can't come between."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def writes_of(*words: object) -> list[bytes]:
    """What the command writes to standard error, one entry for each write, where Python does not buffer."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # keeps the writes apart
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with here, subprocess.Popen(list(map(str, words)), stderr=there, stdout=subprocess.DEVNULL, env=environment) as job:
        there.close()
        found = []
        while packet := here.recv(1 << 20):
            found.append(packet)
        job.wait(timeout=60)
    return found


def test_print_would_write_the_newline_on_its_own() -> None:
    writes = writes_of(sys.executable, "-c", "import sys; print('a', file=sys.stderr)")
    assert writes == [b"a", b"\n"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["{source}", "{out}"], b"3/3 files"),
        (["{source}/none", "{out}"], b"staging: error"),
    ],
)
def test_staging_writes_whole_lines(words: list[str], text: bytes, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in "abc":
        (source / name).write_bytes(b"x" * 1000)
    filled = [word.format(source=source, out=tmp_path / "out") for word in words]
    writes = writes_of(sys.executable, "-m", "staging", *filled)
    assert any(text in line for line in writes)
    assert all(line.endswith(b"\n") for line in writes)


def test_hpcbench_writes_whole_lines() -> None:
    writes = writes_of(sys.executable, "-m", "hpcbench", "train", "cosmoflow", "--preset", "none")
    assert [line.count(b"\n") for line in writes] == [1]
    assert writes[0].startswith(b"hpcbench: error: ")
    assert writes[0].endswith(b"\n")
