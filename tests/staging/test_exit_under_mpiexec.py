"""Ranks of mpiexec that exit one after the other: none is killed because another has exited before it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from staging.ranks import mpi

PROGRAM = Path(__file__).parent / "programs" / "delayed_exit.py"


@pytest.mark.mpi
@pytest.mark.parametrize("code", [0, 138])
def test_a_rank_that_exits_later_than_others_is_not_killed(mpiexec: str, code: int) -> None:
    command = [mpiexec, "-n", "3", sys.executable, PROGRAM, "0.3", str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "left\n" * 3)


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The end of an mpiexec whose rank, which has loaded MPI, is this process."""
    theirs, ours = socket.socketpair()
    with theirs, ours:
        monkeypatch.setenv("PMI_FD", str(ours.fileno()))
        monkeypatch.setattr(mpi, "_pmi_socket", mpi._find_pmi_socket(os.environ))
        monkeypatch.setattr(mpi, "ANSWER_S", 0.01)
        theirs.settimeout(0.1)
        yield theirs


def test_a_rank_sends_finalize_once_and_its_socket_stays_open(launcher: socket.socket) -> None:
    mpi.finalize_pmi()
    mpi.finalize_pmi()
    assert launcher.recv(100) == b"cmd=finalize\n"
    with pytest.raises(TimeoutError):
        launcher.recv(100)


@pytest.mark.parametrize("kind", ["file", "socket"])
def test_nothing_is_written_into_another_file_with_the_same_descriptor(
    launcher: socket.socket, kind: str, tmp_path: Path
) -> None:
    """Older libraries close the socket in MPI's Finalize, and the next file that is opened gets its number."""
    other, end = socket.socketpair()
    end.settimeout(0.1)
    with other, end, (tmp_path / "checkpoint").open("wb") as file:
        os.dup2((file if kind == "file" else other).fileno(), int(os.environ["PMI_FD"]))
        mpi.finalize_pmi()
        with pytest.raises(TimeoutError):
            end.recv(100)
    assert (tmp_path / "checkpoint").read_bytes() == b""


def test_nothing_is_sent_to_srun(launcher: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of PMI-2: a message of PMI-1 would be an error there."""
    for name, value in {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}.items():
        monkeypatch.setenv(name, value)
    mpi.finalize_pmi()
    with pytest.raises(TimeoutError):
        launcher.recv(100)
