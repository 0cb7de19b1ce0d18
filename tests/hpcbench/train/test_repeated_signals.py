"""A training, alone or as ranks, under a signal that is sent again until it has gone: written down whole, as asked."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcbench.results.run_folder import RunFolder
from staging.ranks.signals import REPEATED_S
from tests.hpcbench.train.conftest import arguments
from tests.staging.processes import ENVIRON, wait_until

ENDLESS = ("--train.max_epochs", "1000000", "--train.target", "1e-9")
LIMIT_S = 120.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "settings"),
    [(signal.SIGTERM, ()), (signal.SIGUSR1, ("--parallel.devices", "2"))],
    ids=["alone", "ranks"],
)
def test_a_signal_that_is_sent_until_the_end(
    number: signal.Signals, settings: tuple[str, ...], cosmos: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-m", "hpcbench", *arguments(cosmos, run, *ENDLESS, *settings)]
    process = subprocess.Popen(words, env=ENVIRON, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list((run / "checkpoints").glob("*")), LIMIT_S)
    deadline = time.monotonic() + REPEATED_S / 2  # who goes on for longer does not want to wait
    while process.poll() is None and time.monotonic() < deadline:
        process.send_signal(number)
        time.sleep(0.001)
    _, error = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number, error
    assert error.splitlines()[-1] == f"hpcbench: aborted: signal {number.name}"
    assert "Traceback" not in error
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.cause, summary.signal) == ("aborted", "signal", number.name)
    assert summary.complete
