"""What signals do to a run: between steps, at once, and when it is over."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from hpcbench.exits import Aborted
from hpcbench.train.interrupt import Interrupts


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    """This process's own handler, as it was."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_a_signal_waits_for_the_end_of_a_step_and_a_second_one_does_not() -> None:
    with Interrupts() as interrupts:
        with interrupts.deferred():
            send(signal.SIGUSR1)
        with pytest.raises(Aborted, match="signal SIGUSR1") as error:
            interrupts.check()
        assert error.value.exit_code == 138
        with pytest.raises(Aborted), interrupts.deferred():
            send(signal.SIGUSR1)


@pytest.mark.parametrize("others", [False, True])
def test_a_warning_that_comes_too_late_changes_nothing(others: bool) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    with Interrupts() as interrupts:
        interrupts.too_late(others=others)
        send(signal.SIGUSR1)
        interrupts.check()
        with pytest.raises(Aborted, match="signal SIGTERM"):
            send(signal.SIGTERM)
    assert signal.getsignal(signal.SIGUSR1) == (signal.SIG_IGN if others else signal.SIG_DFL)
