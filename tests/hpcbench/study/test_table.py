"""Cells of the table of a convergence study."""

from __future__ import annotations

from hpcbench.study.table import short


def test_times_are_short() -> None:
    assert [short(value) for value in (7.1, 95, 400, 40_000, None)] == ["7.1 s", "95 s", "6.7 min", "11 h", "-"]
    assert [short(value) for value in (99.4, 99.6, 5975, 358_500)] == ["99 s", "1.7 min", "1.7 h", "100 h"]
