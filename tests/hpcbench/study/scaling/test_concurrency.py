"""Whether instances trained at the same time, from their own clocks, whatever these say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.study.scaling.concurrency import (
    CLOCKS_S,
    LATE,
    InstanceClock,
    concurrent,
    last_start_s,
    read_clock,
    share_together,
    span_s,
)
from tests.hpcbench.study.scaling.test_read_results import write_log

HOUR, DAY = 3600.0, 86_400.0


def clocks(*extents: tuple[float, float]) -> list[InstanceClock]:
    """Instances ``a``, ``b``, ... with these starts and stops."""
    return [InstanceClock("abcdefgh"[number], *extent) for number, extent in enumerate(extents)]


def kept(instances: list[InstanceClock]) -> str:
    """Names of the instances that count."""
    return "".join(each.name for each in concurrent(instances)[0])


def test_instances_that_begin_together_count_however_long_they_take() -> None:
    found = clocks((0, HOUR), (100, 2 * HOUR), (0, 1.5 * HOUR))
    assert concurrent(found) == (found, [])
    assert (span_s(found), last_start_s(found)) == (2 * HOUR, 100)
    assert share_together(found) == pytest.approx(3 * (HOUR - 100) / (4.5 * HOUR - 100))


def test_one_after_another_is_not_at_the_same_time() -> None:
    found = clocks((0, HOUR), (DAY, DAY + HOUR), (2 * DAY, 2 * DAY + HOUR))
    (first,), pruned = concurrent(found)
    assert first.name == "a"
    assert [(each.name, each.cause, each.reason) for each in pruned] == [
        ("b", "late", "began 24 h 00 min after the others, when these had ended"),
        ("c", "late", "began 48 h 00 min after the others, when these had ended"),
    ]
    assert share_together(found) == 0.0


def test_the_largest_set_counts_even_if_another_instance_was_first() -> None:
    found = clocks((0, HOUR), (DAY, DAY + HOUR), (DAY + 10, DAY + HOUR), (DAY - HOUR, DAY + HOUR))
    assert kept(found) == "bc"
    assert [each.reason for each in concurrent(found)[1]] == [
        "began 24 h 00 min before the others, and had ended by then", "began 1 h 00 min before the others"
    ]  # fmt: skip


def test_a_delay_is_late_beyond_a_tenth_of_the_training_and_the_doubt_of_the_clocks() -> None:
    room = CLOCKS_S + LATE * HOUR
    assert kept(clocks((0, HOUR), (room - 0.01, room - 0.01 + HOUR))) == "ab"
    assert kept(clocks((0, HOUR), (room + 0.01, room + 0.01 + HOUR))) == "a"
    assert kept(clocks((0, 2), (0.9, 2.9))) == "ab", "clocks may differ by as much"


def test_an_instance_that_was_interrupted_for_long_is_pruned() -> None:
    short, long = (100.0, 200.0), (100.0, 100.0 + HOUR)
    found = [
        *clocks((0, HOUR), (0, HOUR)), InstanceClock("c", 0, HOUR, [short]),
        InstanceClock("d", 0, 2 * HOUR, [long]),
    ]  # fmt: skip
    assert kept(found) == "abc"
    (pruned,) = concurrent(found)[1]
    assert (pruned.name, pruned.cause, pruned.reason) == ("d", "interrupted", "was interrupted for 1 h 00 min")
    assert share_together(found[:3]) == pytest.approx((HOUR - 100) / (HOUR - 100 / 3))


EXTENTS = st.tuples(st.floats(0, 1e6), st.floats(0, 1e5), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)),
                                                               max_size=2))  # fmt: skip


@given(st.lists(EXTENTS, min_size=1, max_size=8))
def test_every_instance_counts_or_is_pruned_with_a_reason(drawn: list[tuple[float, float, list[tuple[float, float]]]]
                                                          ) -> None:  # fmt: skip
    found = []
    for number, (start, length, parts) in enumerate(drawn):
        inner = sorted(start + length * part for pair in parts for part in pair)
        gaps = list(zip(inner[::2], inner[1::2], strict=True))
        found.append(InstanceClock(str(number), start, start + length, gaps))
    together, pruned = concurrent(found)
    assert {each.name for each in together} | {each.name for each in pruned} == {each.name for each in found}
    assert len(together) + len(pruned) == len(found)
    assert all(each.reason for each in pruned)
    assert 0 <= share_together(found) <= 1 + 1e-9
    if len(found) == 1 and not pruned and found[0].running_s > 1e-3:
        assert share_together(found) == pytest.approx(1)


def test_the_clock_of_a_run_is_in_its_log_and_its_gaps_are_between_its_attempts(tmp_path: Path) -> None:
    write_log(tmp_path / "mllog.txt", 1_000_000, 2_000_000, "nid1")
    assert read_clock(tmp_path) == InstanceClock(tmp_path.name, 1000.0, 2000.0)
    Attempts([Attempt(990, 1200, 0, 5), Attempt(1300, 1500, 5, 8), Attempt(1501, 2010, 8, 20)]).write(tmp_path)
    found = read_clock(tmp_path)
    assert found.gaps == ((1200, 1300), (1500, 1501))
    assert (found.running_s, found.away_s) == (899, 101)


def test_a_clock_that_runs_backwards_is_no_training_time(tmp_path: Path) -> None:
    write_log(tmp_path / "mllog.txt", 2_000_000, 1_000_000, "nid1")
    found = read_clock(tmp_path)
    assert (found.running, found.running_s) == ([], 0)
    assert share_together([found]) == 0.0
    (tmp_path / "attempts.json").write_text(json.dumps({"schema": 1, "attempts": [], "ranks": []}), encoding="utf-8")
    assert read_clock(tmp_path) == found
