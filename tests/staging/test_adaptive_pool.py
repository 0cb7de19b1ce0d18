"""A pool grows while its threads wait; results come in order, and the first error ends all."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest

from staging.ranks.signals import Interrupted, Interrupts
from staging.threads import adaptive_pool
from staging.threads.adaptive_pool import are_small, map_in_threads, run_in_threads
from staging.threads.channel import Failure


def workers(pause_s: float, threads: int, *, at_once: bool = False) -> set[str]:
    """The threads that took part in 60 items which take so long."""
    seen: set[str] = set()

    def take(item: int) -> None:
        seen.add(threading.current_thread().name)
        time.sleep(pause_s)

    map_in_threads(take, range(60), threads, at_once=at_once)
    return seen


def test_those_who_wait_are_joined_by_others() -> None:
    assert len(workers(0.01, 4)) == 4


def test_one_is_enough_where_one_is_asked_for() -> None:
    assert workers(0.001, 1) == {"stage-0"}


def test_those_who_compute_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if each second of the clock were one of a processor, which a busy machine does not grant.
    monkeypatch.setattr(adaptive_pool, "_processor_s", lambda clocks: time.perf_counter())
    assert workers(0.005, 4) == {"stage-0"}
    assert len(workers(0.005, 4, at_once=True)) == 4


def test_clocks_are_those_of_threads() -> None:
    """Against the thread's own: computing counts, sleeping and other threads don't, nor does one that has ended."""
    clocks: list[int] = []
    ended = threading.Thread(target=lambda: clocks.append(time.pthread_getcpuclockid(threading.get_ident())))
    ended.start()
    ended.join()
    clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
    before, own = adaptive_pool._processor_s(clocks), time.thread_time()
    deadline = time.perf_counter() + 0.05
    while time.perf_counter() < deadline:
        pass
    time.sleep(0.05)
    used, expected = adaptive_pool._processor_s(clocks) - before, time.thread_time() - own
    assert used == pytest.approx(expected, abs=0.005)
    assert 0 < used < 0.09


def test_results_keep_the_order_of_the_items() -> None:
    def delayed(item: int) -> int:
        time.sleep(0.02 if item % 7 == 0 else 0.001)
        return item * item

    assert map_in_threads(delayed, range(100), 8, at_once=True) == [item * item for item in range(100)]
    assert map_in_threads(delayed, [], 8) == []


@pytest.mark.parametrize("at_once", [False, True])
def test_the_first_error_ends_all(at_once: bool) -> None:
    begun: list[int] = []

    def take(item: int) -> None:
        begun.append(item)
        time.sleep(0.005)
        if item == 20:
            raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 20"):
        map_in_threads(take, range(10_000), 4, at_once=at_once)
    assert len(begun) < 40


def test_an_error_of_a_thread_that_joined_later_is_raised() -> None:
    def work() -> None:
        if threading.current_thread().name != "stage-0":
            raise OSError("the disk is gone")
        for _ in range(100):
            time.sleep(0.01)
            if failure.error is not None:
                return

    failure = Failure()
    with pytest.raises(OSError, match="the disk is gone"):
        run_in_threads(work, 2, failure, at_once=False)


@pytest.mark.parametrize("at_once", [False, True])
def test_an_error_of_a_signal_waits_for_the_work_in_hand(at_once: bool) -> None:
    """Work is broken off between items alone, and all threads have ended when the error comes out."""
    failure, broken_off, under_way = Failure(), list[int](), list[int]()

    def work() -> None:
        while failure.error is None:
            under_way.append(1)
            try:
                time.sleep(0.3)
            except BaseException:
                broken_off.append(1)
                raise
            under_way.pop()

    signals = threading.Timer(0.2, lambda: [os.kill(os.getpid(), signal.SIGUSR1) for _ in range(3)])
    signals.start()
    with pytest.raises(Interrupted, match="signal SIGUSR1"), Interrupts():
        run_in_threads(work, 3, failure, at_once=at_once)
    assert not under_way
    assert not broken_off
    signals.join()


def test_a_thread_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start: Callable[[threading.Thread], None] = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "stage-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        workers(0.01, 4)


def test_small_is_below_128_kib_a_file() -> None:
    assert are_small(131_071 * 3, 3)
    assert not are_small(131_072 * 3, 3)
    assert not are_small(0, 0)
