"""Plain text tables."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpcbench.results.records import load_runs
from hpcbench.results.tables import phases_table, runs_table, table

cells = st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=60)


@given(st.lists(st.lists(cells, min_size=8, max_size=8), max_size=5))
def test_no_table_is_wider_than_100_columns(rows: list[list[str]]) -> None:
    text = table([f"column {number}" for number in range(8)], rows, right=["column 2"])
    lines = text.split("\n")
    assert max(map(len, lines)) <= 100
    assert len(lines) == 2 + len(rows)


def test_cells_that_fit_are_shown_whole() -> None:
    text = table(["name", "value"], [["a", "1.25"], ["longer", "10"]], right=["value"])
    assert text.splitlines() == ["name    value", "------  -----", "a        1.25", "longer     10"]


def test_cells_that_do_not_fit_say_so() -> None:
    assert table(["name"], [["x" * 120]]).splitlines()[2] == "x" * 98 + ".."


def test_runs_table_shows_the_numbers_of_the_summaries(build_run: Any) -> None:
    reached = build_run(
        "a", seed=4_194_967_295, metrics={"mae": 0.28714}, time_to_solution_s=192.3, samples_per_s=87.31
    )
    missed = build_run("b", application="deepcam", status="target_not_reached", best=0.5911)
    aborted = build_run("c", status="aborted", metrics={}, best=None, samples_per_s=None, target=None)
    lines = runs_table(load_runs([reached, missed, aborted])).splitlines()
    assert max(map(len, lines)) <= 100
    first = lines[2].split()
    assert first[:6] == ["cosmoflow", "laptop", "4194967295", "<=", "0.3", "yes"]
    assert "3 min 12 s" in lines[2]
    assert "87.3" in first
    assert "0.2871" in first
    assert "0.3216" in first
    assert ">= 0.62" in lines[3]
    assert lines[3].split()[5] == "no"
    assert "0.5911" in lines[3]
    assert lines[4].split()[3:5] == ["-", "aborted"]


def test_phases_table_has_the_phases_that_took_time(build_run: Any) -> None:
    text = phases_table(load_runs([build_run()]))
    assert max(map(len, text.splitlines())) <= 100
    assert "compute" in text
    assert "37.7" in text
    assert "communication" not in text


def test_run_without_a_target_reaches_none(build_run: Any) -> None:
    assert runs_table(load_runs([build_run(target=None)])).splitlines()[2].split()[3:5] == ["-", "-"]
