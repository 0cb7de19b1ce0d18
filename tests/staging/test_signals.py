"""The first signal decides; repeated ones are the same; a late one does not wait; and how long there is to write."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys

import pytest

from staging.errors import Aborted, InputError
from staging.ranks.signals import CAUGHT, Interrupted, Interrupts, warning_time
from tests.staging.processes import ENVIRON


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def end_of(body: str) -> int:
    """The exit code of a process that does ``body`` with ``interrupts`` entered and a short time for repeats."""
    script = (
        "import os, signal, sys, time\n"
        "from staging.ranks import signals\n"
        "signals.REPEATED_S = 0.3\n"
        "def send(number): os.kill(os.getpid(), number)\n"
        "interrupts = signals.Interrupts()\n" + body
    )
    return subprocess.run([sys.executable, "-c", script], env=ENVIRON, timeout=30, check=False).returncode


@pytest.mark.parametrize("number", CAUGHT)
def test_outside_a_loop_a_signal_acts_at_once(number: signal.Signals) -> None:
    with pytest.raises(Interrupted, match=f"signal {number.name}") as caught, Interrupts():
        send(number)
    assert isinstance(caught.value, Aborted)
    assert caught.value.exit_code == 128 + number
    assert not caught.value.everywhere


def test_in_a_loop_the_first_waits_for_the_next_look_and_others_are_the_same() -> None:
    with Interrupts() as interrupts:
        with interrupts.deferred():
            interrupts.check()
            send(signal.SIGUSR1)
            send(signal.SIGTERM)
            with pytest.raises(Interrupted, match="signal SIGUSR1"):
                interrupts.check()
        send(signal.SIGTERM)  # outside, too
        assert interrupts.received == signal.SIGUSR1


def test_one_that_meets_a_destructor_where_python_drops_errors_is_raised_again() -> None:
    dropped = (
        "class Destroyed:\n"
        "    def __del__(self): send(signal.SIGTERM)\n"
        "try:\n"
        "    with interrupts: Destroyed(); time.sleep(10)\n"
        "except signals.Interrupted as error: sys.exit(error.exit_code)"
    )
    assert end_of(dropped) == 143


def test_one_whose_work_ends_before_it_is_raised_again_is_forgotten() -> None:
    ended = (
        "class Destroyed:\n"
        "    def __del__(self): send(signal.SIGTERM)\n"
        "with interrupts: Destroyed()\n"
        "time.sleep(0.3); sys.exit(7)"
    )
    assert end_of(ended) == 7


def test_an_error_of_a_destructor_while_a_process_tidies_up_sends_no_signal_again() -> None:
    tidying_up = (
        "class Destroyed:\n"
        "    def __del__(self): os.close(1 << 20)\n"
        "with interrupts:\n"
        "    try: send(signal.SIGTERM)\n"
        "    except signals.Interrupted: Destroyed(); time.sleep(0.3); os._exit(7)"
    )
    assert end_of(tidying_up) == 7


def test_any_other_error_of_a_destructor_is_told_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    class Destroyed:
        def __del__(self) -> None:
            raise OSError("of a destructor")

    before, sys.unraisablehook = sys.unraisablehook, sys.__unraisablehook__
    try:
        with Interrupts() as interrupts, interrupts:
            Destroyed()
        assert sys.unraisablehook is sys.__unraisablehook__
    finally:
        sys.unraisablehook = before
    assert "OSError: of a destructor" in capsys.readouterr().err


def test_handlers_return_unless_a_signal_ends_the_process() -> None:
    before = [signal.getsignal(number) for number in CAUGHT]
    with Interrupts():
        assert [signal.getsignal(number) for number in CAUGHT] != before
    assert [signal.getsignal(number) for number in CAUGHT] == before
    with pytest.raises(Interrupted), Interrupts():
        send(signal.SIGTERM)
    send(signal.SIGTERM)  # a launcher repeats it while this process tidies up


def test_a_late_second_signal_ends_the_process_with_the_first_ones_code() -> None:
    in_the_loop = (
        "with interrupts, interrupts.deferred():\n"
        "    send(signal.SIGUSR1); time.sleep(0.1); send(signal.SIGINT); time.sleep(0.4)\n"
        "    print('still here', flush=True); send(signal.SIGTERM); time.sleep(10)"
    )
    assert end_of(in_the_loop) == 138
    tidying_up = (
        "try:\n"
        "    with interrupts: send(signal.SIGTERM)\n"
        "except signals.Interrupted:\n"
        "    time.sleep(0.4); send(signal.SIGINT); time.sleep(10)"
    )
    assert end_of(tidying_up) == 143


def test_a_repeated_signal_does_not_end_a_process_that_tidies_up() -> None:
    tidying_up = (
        "try:\n"
        "    with interrupts: send(signal.SIGUSR1)\n"
        "except signals.Interrupted as error:\n"
        "    send(signal.SIGTERM); send(signal.SIGINT); sys.exit(7)"
    )
    assert end_of(tidying_up) == 7


@pytest.mark.parametrize("number", CAUGHT)
def test_nor_one_that_meets_the_end_of_python(number: signal.Signals) -> None:
    """Python gives the signals back after its last handlers, and before it takes modules apart."""
    at_the_very_end = (
        "class Last:\n"
        f"    def __del__(self, kill=os.kill, own=os.getpid()): kill(own, {int(number)})\n"
        "sys.modules['last'] = Last()\n"
        "try:\n"
        f"    with interrupts: send({int(number)})\n"
        "except signals.Interrupted as error: sys.exit(error.exit_code)"
    )
    assert end_of(at_the_very_end) == 128 + number


def close_what_is_closed() -> None:
    os.close(1 << 20)


def break_on_the_way_out() -> None:
    try:
        send(signal.SIGTERM)
    finally:
        close_what_is_closed()


def test_what_breaks_on_the_way_out_does_not_hide_the_signal() -> None:
    with pytest.raises(Interrupted, match="signal SIGTERM") as caught, Interrupts():
        break_on_the_way_out()
    assert caught.value.exit_code == 143


def test_what_breaks_of_itself_after_a_signal_is_told() -> None:
    with Interrupts() as interrupts, interrupts.deferred():
        send(signal.SIGTERM)
        with pytest.raises(OSError, match="Bad file descriptor"), interrupts:
            close_what_is_closed()


@pytest.mark.parametrize("others", [False, True])
def test_a_warning_that_comes_too_late_changes_nothing(others: bool) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    with Interrupts() as interrupts:
        with interrupts.deferred():
            send(signal.SIGTERM)  # in the last step
        interrupts.too_late(others=others)
        send(signal.SIGUSR1)
        interrupts.check()
    assert signal.getsignal(signal.SIGUSR1) == (signal.SIG_IGN if others else signal.SIG_DFL)
    with Interrupts() as interrupts:
        interrupts.too_late(others=others)
        with pytest.raises(Interrupted, match="signal SIGTERM"):
            send(signal.SIGTERM)


@pytest.mark.parametrize(
    ("number", "warning_s", "seconds"),
    [(signal.SIGTERM, 600, 25), (signal.SIGINT, 600, 25), (signal.SIGUSR1, 600, 595), (signal.SIGUSR1, 10, 9)],
)
def test_time_to_write(number: signal.Signals, warning_s: float, seconds: float) -> None:
    with Interrupts(warning_s) as interrupts, interrupts.deferred():
        assert interrupts.seconds_left() == math.inf
        send(number)
        came = interrupts.received_at
        assert interrupts.seconds_left(came) == pytest.approx(seconds)
        assert interrupts.seconds_left(came + seconds + 1) == pytest.approx(-1)
        assert 0 < interrupts.seconds_left() <= seconds


def test_the_warning_time_of_a_job() -> None:
    assert warning_time({}) == 120
    assert warning_time({"HPCBENCH_WARN_S": "300"}) == 300
    for text in ("soon", "-1", "nan", "inf"):
        with pytest.raises(InputError, match=rf"HPCBENCH_WARN_S \({text}\) must be a number of seconds, at least 0"):
            warning_time({"HPCBENCH_WARN_S": text})
