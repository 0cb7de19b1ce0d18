"""A channel is bounded, keeps order, says how long it made others wait, and breaks when anything fails."""

from __future__ import annotations

import threading
import time

import pytest

from staging.threads.channel import BrokenPipelineError, Channel, Failure


def test_order_and_end() -> None:
    channel: Channel[int] = Channel(3, Failure())
    thread = threading.Thread(target=lambda: ([channel.put(i) for i in range(100)], channel.close()))
    thread.start()
    assert list(channel) == list(range(100))
    thread.join()


def test_a_full_channel_makes_the_putter_wait_and_says_so() -> None:
    channel: Channel[int] = Channel(1, Failure())
    channel.put(1)
    timer = threading.Timer(0.1, channel.get)
    timer.start()
    channel.put(2)
    assert channel.put_stalled_s == pytest.approx(0.1, abs=0.09)
    assert channel.get_stalled_s == 0


def test_a_failure_wakes_all_who_wait() -> None:
    failure = Failure()
    full: Channel[int] = Channel(1, failure)
    empty: Channel[int] = Channel(1, failure)
    full.put(1)
    broken: list[BaseException] = []

    def wait(action: object) -> None:
        try:
            action()  # type: ignore[operator]
        except BrokenPipelineError as error:
            broken.append(error)

    threads = [threading.Thread(target=wait, args=(action,)) for action in (lambda: full.put(2), empty.get)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    failure.fail(ValueError("first"))
    failure.fail(OSError("second"))
    for thread in threads:
        thread.join(5)
    assert len(broken) == 2
    with pytest.raises(ValueError, match="first"):
        failure.check()


def test_an_echo_does_not_hide_the_cause() -> None:
    failure = Failure()
    failure.fail(BrokenPipelineError())
    failure.fail(OSError("the cause"))
    with pytest.raises(OSError, match="the cause"):
        failure.check()
