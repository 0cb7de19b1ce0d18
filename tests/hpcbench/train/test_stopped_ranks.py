"""A training of which another process stops a rank ends by itself, says which rank it was, and can be resumed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hpcbench.results.checkpoint_files import complete
from hpcbench.results.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.mpi]

Train = Callable[..., int]
LIMIT_S = 100


def ranks_below(pid: int) -> dict[int, int]:
    """Process ids by rank of the Python processes that a launcher has started."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        rank = process.environ().get("PMI_RANK")
        if rank is not None and "python" in process.name():
            found[int(rank)] = process.pid
    return found


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_rank_ends_the_training_which_can_be_resumed(
    stopped: int, start: Callable[..., object], train: Train, mpiexec: str, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    endless = ("--train.max_epochs", "5000", "--parallel.hang_s", "4", "--train.local_batch_size", "4")
    process = start(run, *endless, before=(mpiexec, "-n", "2"))
    deadline = time.monotonic() + LIMIT_S
    while len(complete(run / "checkpoints")) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None  # type: ignore[attr-defined]
        time.sleep(0.1)
    ranks = ranks_below(process.pid)  # type: ignore[attr-defined]
    assert sorted(ranks) == [0, 1]
    os.kill(ranks[stopped], signal.SIGSTOP)
    output, _ = process.communicate(timeout=LIMIT_S)  # type: ignore[attr-defined]
    assert process.returncode not in (0, 2, 3)  # type: ignore[attr-defined]
    assert f"aborted: rank {stopped} on " in output
    assert "its process stopped" in output
    assert "resume with --resume" in output
    report = (run / "hang.txt").read_text()
    assert f"rank {stopped} on " in report.splitlines()[0]
    assert "loop.py" in report, "the stack of the rank that waited"
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.cause) == ("aborted", "hang"), "written by the other rank where rank 0 hangs"
    assert summary.reason in output
    assert summary.steps >= len(RunFolder.open(run).read_steps()) > 0
    assert summary.epochs >= 1
    assert summary.checkpoints >= 1
    assert summary.checkpoint_write_bytes > 0
    time.sleep(1)
    assert not [pid for pid in ranks.values() if is_alive(pid)], "no process is left"
    epochs = int(complete(run / "checkpoints")[-1].name.split("-")[1])
    alone = ("--parallel.spatial", "1", "--train.local_batch_size", "8", "--train.max_epochs", str(epochs + 1))
    assert train(run, "--resume", *alone) == 0
    assert RunFolder.open(run).read_summary().epochs == epochs + 1
