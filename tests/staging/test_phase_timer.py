"""PhaseTimer are exclusive and add up to the wall time, on a clock that the test moves."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.phase_timer import PhaseTimer


class Clock:
    """Time that passes only when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_an_inner_span_pauses_the_outer_one() -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    clock.wait(1)
    with spans.span("compute"):
        clock.wait(2)
        with spans.span("communication"):
            clock.wait(4)
        clock.wait(8)
    clock.wait(16)
    assert spans.totals() == {"compute": 10, "communication": 4}
    assert spans.wall() == 31
    assert spans.other() == 17
    assert spans.summary() == {"compute": 10, "communication": 4, "other": 17, "wall": 31}


def test_a_span_within_itself_counts_once() -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    with spans.span("a"):
        clock.wait(1)
        with spans.span("a"):
            clock.wait(2)
        clock.wait(4)
    assert spans.totals() == {"a": 7}


def test_an_open_span_counts_up_to_now() -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    with spans.span("a"):
        clock.wait(3)
        assert spans.summary() == {"a": 3, "other": 0, "wall": 3}


def test_an_exception_closes_its_span() -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    with pytest.raises(ValueError, match="x"), spans.span("a"):  # noqa: PT012
        clock.wait(2)
        raise ValueError("x")
    clock.wait(5)
    assert spans.summary() == {"a": 2, "other": 5, "wall": 7}


def test_stop_ends_the_wall_time() -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    with spans.span("a"):
        clock.wait(2)
        spans.stop()
        clock.wait(50)
    clock.wait(50)
    spans.stop()
    assert spans.summary() == {"a": 2, "other": 0, "wall": 2}


def test_time_before_construction_is_part_of_the_wall_time() -> None:
    clock = Clock()
    spans = PhaseTimer(clock, start=90.0)
    spans.add("imports", 6)
    assert spans.summary() == {"imports": 6, "other": 4, "wall": 10}


def test_added_seconds_come_out_of_the_open_span() -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    with spans.span("compute"):
        clock.wait(10)
        spans.add("communication", 3)
        clock.wait(1)
    assert spans.summary() == {"compute": 8, "communication": 3, "other": 0, "wall": 11}


def test_moved_seconds_keep_the_sum() -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    with spans.span("compute"):
        clock.wait(10)
    spans.move("compute", "communication", 4)
    assert spans.summary() == {"compute": 6, "communication": 4, "other": 0, "wall": 10}


steps = st.lists(st.tuples(st.sampled_from("abcd("), st.floats(1e-7, 1e4)), max_size=40)


@given(steps)
def test_the_parts_add_up_to_the_wall_time_exactly(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    spans = PhaseTimer(clock)
    for name, seconds in steps:
        if name == "(":
            clock.wait(seconds)
        else:
            with spans.span(name):
                clock.wait(seconds)
                with spans.span("inner"):
                    clock.wait(seconds / 3)
    summary = spans.summary()
    wall = summary.pop("wall")
    assert sum(summary.values()) == wall
    assert wall == pytest.approx(spans.wall(), rel=1e-12, abs=1e-9)
    assert all(seconds >= -1e-9 for seconds in summary.values())


def test_real_time_is_covered_to_within_a_percent() -> None:
    def covered() -> bool:
        spans = PhaseTimer()
        for _ in range(5):
            with spans.span("sleep"):
                time.sleep(0.02)
        summary = spans.summary()
        assert 0.1 <= summary["sleep"] <= summary["wall"]
        return bool(summary["other"] < 0.01 * summary["wall"])

    assert any(covered() for _ in range(50)), "a busy machine may stop this process between two spans, but not always"


def test_a_span_costs_a_few_microseconds_at_most() -> None:
    def cost() -> float:
        spans = PhaseTimer()
        start = time.perf_counter()
        for _ in range(2000):
            with spans.span("step"):
                pass
        return (time.perf_counter() - start) / 2000

    assert min(cost() for _ in range(20)) < 5e-6
