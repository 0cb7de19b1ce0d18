"""Phases over ranks: medians, and the slowest rank by its name."""

from __future__ import annotations

import math
from typing import Any

from hpcbench.results.rank_phases import RankPhase, rank_name, run_phases, step_phases


def row(rank: int, node: str, **seconds: float) -> dict[str, Any]:
    return {"rank": rank, "node": node, "steps": 10, **{f"{name}_s": value for name, value in seconds.items()}}


ROWS = [
    row(0, "nid1", run_compute=5.0, run_waiting=3.0, run_communication=2.0, run_halo=2.0, run_sharding=0.0),
    row(1, "nid1", run_compute=6.0, run_waiting=2.0, run_communication=2.0, run_halo=2.0, run_sharding=0.0),
    row(2, "nid17", run_compute=9.0, run_waiting=0.0, run_communication=1.0, run_halo=0.5, run_sharding=0.5),
]


def by_name(phases: list[RankPhase]) -> dict[str, tuple[float, float, str]]:
    return {phase.name: (phase.median_s, phase.slowest_s, phase.slowest_rank) for phase in phases}


def test_the_slowest_rank_of_a_phase_is_named() -> None:
    found = run_phases(ROWS)
    assert by_name(found) == {
        "compute": (6.0, 9.0, "rank 2 on nid17"),
        "communication": (2.0, 2.0, "rank 0 on nid1"),
        "waiting": (2.0, 3.0, "rank 0 on nid1"),
    }
    assert [phase.label for phase in found] == ["compute", "communication", "waiting"]


def test_halos_and_sharding_are_apart_for_who_asks() -> None:
    communication = run_phases(ROWS)[1]
    assert by_name(list(communication.parts)) == {
        "halo": (2.0, 2.0, "rank 0 on nid1"),
        "sharding": (0.0, 0.5, "rank 2 on nid17"),
    }


def test_the_median_of_two_ranks_lies_between_them() -> None:
    assert by_name(run_phases(ROWS[1:]))["compute"] == (7.5, 9.0, "rank 2 on nid17")


def test_a_rank_alone_is_not_named() -> None:
    assert by_name(run_phases(ROWS[:1]))["compute"] == (5.0, 5.0, "")


def test_steps_after_the_warm_up_have_phases_of_their_own() -> None:
    rows = [row(0, "a", compute=1.0, waiting=0.5), row(1, "b", compute=2.0, waiting=0.0)]
    assert by_name(step_phases(rows)) == {"compute": (1.5, 2.0, "rank 1 on b"), "waiting": (0.25, 0.5, "rank 0 on a")}
    assert step_phases([{**each, "steps": 0} for each in rows]) == []


def test_what_a_rank_does_not_know_is_left_out() -> None:
    """As in tables of earlier versions, and where a table has empty cells."""
    rows = [row(0, "a", run_compute=1.0), row(1, "b", run_compute=math.nan, run_waiting=1.0)]
    assert run_phases(rows) == []
    assert run_phases([]) == []


def test_a_number_that_a_table_made_a_fraction_is_a_rank() -> None:
    assert rank_name({"rank": 3.0, "node": "node17"}) == "rank 3 on node17"
