"""Worker processes that die are told in a line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hpcbench.data.workers import worker_pool
from staging.errors import Aborted


def test_a_pool_gives_what_its_work_gives() -> None:
    with worker_pool("apps.cosmoflow", 2) as pool:
        assert list(pool.map(abs, [-1, 2, -3])) == [1, 2, 3]


def test_a_worker_that_dies_ends_the_work_with_a_line() -> None:
    words = r"^a worker process was killed \(out of memory\?\); take fewer --processes$"
    with pytest.raises(Aborted, match=words), worker_pool("apps.cosmoflow", 2) as pool:
        list(pool.map(signal.raise_signal, [signal.SIGKILL] * 2))


@pytest.mark.slow
@pytest.mark.parametrize("action", ["simulate", "verify"])
def test_a_command_whose_worker_is_killed_says_so_in_a_line(action: str, tmp_path: Path) -> None:
    few = ("--simulate.train_samples", "64", "--simulate.validation_samples", "8")
    base = [sys.executable, "-m", "hpcbench", "data"]
    data = str(tmp_path / "data")
    sizes = ("--preset", "laptop", "--processes", "2")
    simulate = [*base, "simulate", "deepcam", "--out", data, *sizes, *few]
    if action == "verify":
        assert subprocess.run(simulate, check=False, capture_output=True).returncode == 0
    words = simulate if action == "simulate" else [*base, "verify", "deepcam", *sizes, "--data.root", data]
    done = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while done.poll() is None and time.monotonic() < deadline:
        # The server's children are the workers; the server itself and the resource tracker are ours.
        with contextlib.suppress(psutil.Error):
            workers = [each for server in psutil.Process(done.pid).children() for each in server.children()]
            if len(workers) == 2:  # a pool whose first worker dies while it starts the second waits for ever (CPython)
                os.kill(workers[0].pid, signal.SIGKILL)
                break
        time.sleep(0.01)
    _, said = done.communicate(timeout=60)
    assert done.returncode == 1, said
    assert said.splitlines()[-1] == (
        "hpcbench: aborted: a worker process was killed (out of memory?); take fewer --processes"
    )
    assert "Traceback" not in said
