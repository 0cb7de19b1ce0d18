"""The first signal ends a staging in order; one that follows at once is ignored, a late one is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from staging.ranks.signals import Interrupted, interruptible
from tests.staging.processes import ENVIRON


def test_the_first_signal_ends_in_order_and_the_next_are_ignored() -> None:
    def meet_two() -> None:
        with interruptible():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # ignored where a shell has started the tests in the background
    with pytest.raises(Interrupted, match="signal SIGTERM") as caught:
        meet_two()
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGINT) is before


def test_a_late_second_signal_ends_at_once() -> None:
    script = (
        "import os, signal, time\n"
        "from staging.ranks import signals\n"
        "signals.REPEATED_S = 0.05\n"
        "with signals.interruptible():\n"
        "    try: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    except signals.Interrupted:\n"
        "        time.sleep(0.1)\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(10)"
    )
    assert subprocess.run([sys.executable, "-c", script], env=ENVIRON, check=False).returncode == 130
