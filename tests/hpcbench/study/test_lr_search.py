"""The search for learning rates as a pure function: its windows, its halving, and its end whatever the runs do."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcbench.results.summary import Summary
from hpcbench.study.convergence import read_statuses, read_study
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder
from hpcbench.study.lr_search import Choice, Grid, Look, Search, Trial, score, search
from hpcbench.study.plan import (
    PlannedRun,
    all_runs,
    all_searches,
    left,
    next_runs,
    points,
    possible_names,
    search_of,
    searches,
)
from hpcbench.study.rates import Rate
from hpcbench.study.results import read_rows
from hpcbench.study.run_status import RunStatus
from hpcbench.study.table import size

RECORDED = Path(__file__).parents[3] / "docs" / "studies" / "superseded"
ABSENT = RunStatus("absent")


def ended(epochs: float, best: float = 0.3) -> RunStatus:
    """A run that reached its target, missed it (not-a-number), or diverged (infinite)."""
    if math.isinf(epochs):
        return RunStatus("diverged")
    if math.isnan(epochs):
        return RunStatus("missed", summary=Summary("cosmoflow", "", "smoke", best=best, metric="mae"))
    return RunStatus("reached", summary=Summary("cosmoflow", "", "smoke", epochs_to_target=epochs, best=best))


def finish(grid: Grid, rows: Mapping[str, Callable[[Trial], RunStatus]]) -> tuple[Search[str], list[set[Trial]]]:
    """Make every round of a search; what it came to, and the trials of each round, whatever the row."""
    made: dict[tuple[str, Trial], RunStatus] = {}

    def look(row: str) -> Look:
        return lambda trial: made.get((row, trial), ABSENT)

    rounds: list[set[Trial]] = []
    while True:
        found = search(grid, {row: look(row) for row in rows})
        todo = [(row, t) for row, each in found.rows.items() for t in each.trials if (row, t) not in made]
        if not todo:
            return found, rounds
        rounds.append({trial for _, trial in todo})
        made |= {(row, trial): rows[row](trial) for row, trial in todo}


def valley(best: float, highest: float = math.inf) -> Callable[[Trial], RunStatus]:
    """Fewest epochs at one multiple; runs above another one diverge."""
    return lambda t: ended(math.inf if t.multiplier > highest else 3 + abs(math.log2(t.multiplier / best)))


def first(*multipliers: float) -> set[Trial]:
    return {Trial(multiplier, 0) for multiplier in multipliers}


def second(*multipliers: float) -> set[Trial]:
    return {Trial(multiplier, 1) for multiplier in multipliers}


GRID = Grid((0.5, 1.0, 2.0), widenings=2, seeds=2)


def test_the_better_half_gets_a_further_seed() -> None:
    found, rounds = finish(GRID, {"a": valley(1.0)})
    assert rounds == [first(0.5, 1, 2), second(0.5, 1)]
    assert found.rows["a"].choice == Choice(1.0)
    assert not found.at_edge("a")
    _, rounds = finish(Grid((0.25, 0.5, 1, 2, 4), 0, 3), {"a": valley(1.0)})
    assert [len(each) for each in rounds] == [5, 3, 2], "halves of 5 and of 3, rounded up"
    grids = [Grid(tuple(range(1, count + 1)), 0, 2) for count in (3, 5)]
    assert [grid.fewest_runs for grid in grids] == [grid.most_runs for grid in grids] == [5, 8]


def test_a_best_at_an_edge_widens_all_rows_by_the_ratio_of_the_outermost_multiples() -> None:
    found, rounds = finish(GRID, {"a": valley(1.0), "b": valley(4.0)})
    assert rounds == [first(0.5, 1, 2), first(4), first(8), second(0.5, 1, 2, 4, 8) & rounds[-1]]
    assert found.window == (0.5, 1, 2, 4, 8)
    assert {trial for trial in found.rows["a"].trials if not trial.number} == first(0.5, 1, 2, 4, 8)
    assert (found.rows["b"].choice, found.at_edge("b"), found.widened) == (Choice(4.0), False, 2)
    assert Grid((1, 3, 4), 2, 1).ladder == (0.111111, 0.333333, 1, 3, 4, 5.33333, 7.11111)


def test_both_sides_widen_in_the_same_round_and_twice_is_the_most() -> None:
    found, rounds = finish(GRID, {"a": valley(0.01), "b": valley(100.0)})
    assert rounds[:3] == [first(0.5, 1, 2), first(0.25, 4), first(0.125, 8)]
    assert [found.rows[row].choice for row in "ab"] == [Choice(0.125), Choice(8.0)]
    assert found.at_edge("a")
    assert found.at_edge("b")


def test_a_rate_that_is_too_large_is_no_edge() -> None:
    found, rounds = finish(GRID, {"a": valley(2.0, highest=1.0)})
    assert found.window == (0.5, 1, 2)
    assert rounds == [first(0.5, 1, 2), second(0.5, 1)]
    assert (found.rows["a"].choice, found.at_edge("a")) == (Choice(1.0), False)


def test_where_all_rates_diverge_lower_ones_are_tried() -> None:
    found, rounds = finish(GRID, {"a": valley(0.1, highest=0.3)})
    assert rounds == [first(0.5, 1, 2), first(0.25), first(0.125), second(0.125, 0.25)]
    assert found.rows["a"].choice == Choice(0.125)
    found, _ = finish(GRID, {"a": valley(1, highest=0)})
    assert found.rows["a"].choice == Choice(0.125, failed=True)
    for highest in (RunStatus("failed"), RunStatus("diverged")):
        ends = {0.5: RunStatus("failed"), 1.0: RunStatus("failed"), 2.0: highest}

        def crash(trial: Trial, ends: Mapping[float, RunStatus] = ends) -> RunStatus:
            return ends[trial.multiplier]

        found, _ = finish(GRID, {"a": crash})
        assert found.window == (0.5, 1, 2), "a crash says nothing of rates"
        assert found.rows["a"].choice == Choice(None, blocked=True)


def test_a_run_that_failed_blocks_its_row_where_all_others_diverged_and_no_other_row() -> None:
    def crash(trial: Trial) -> RunStatus:
        return RunStatus("failed" if trial.multiplier == 2 else "diverged")

    found, rounds = finish(GRID, {"a": crash, "b": valley(1.0)})
    assert rounds == [first(0.5, 1, 2), second(0.5, 1)]
    assert [found.rows[row].choice for row in "ab"] == [Choice(None, blocked=True), Choice(1.0)]
    found, _ = finish(GRID, {"a": valley(1, highest=0), "b": valley(1.0)})
    assert found.window == (0.125, 0.25, 0.5, 1, 2), "made again, it diverges, too, so lower multiples are tried"


def test_a_further_seed_may_move_the_best_to_an_edge_which_widens_then() -> None:
    def lucky(trial: Trial) -> RunStatus:
        return ended(2.0 if trial == Trial(1.0, 0) else 9.0 if trial.multiplier == 1 else 5 - trial.multiplier / 4)

    found, rounds = finish(GRID, {"a": lucky})
    assert rounds[:3] == [first(0.5, 1, 2), second(1, 2), first(4)]
    assert found.rows["a"].choice != Choice(1.0)


def test_without_widening_a_row_waits_for_no_other() -> None:
    def look(trial: Trial) -> RunStatus:
        return valley(2.0)(trial)

    found = search(replace(GRID, widenings=0), {"a": look, "b": lambda trial: ABSENT})
    assert found.rows["a"].choice == Choice(2.0)
    assert found.at_edge("a")
    assert search(GRID, {"a": look, "b": lambda trial: ABSENT}).rows["a"].choice == Choice(None)


def test_a_rate_is_worth_its_mean_and_a_miss_more_than_any_number_of_epochs() -> None:
    steady, lucky, lost = [ended(9), ended(9)], [ended(2), ended(math.nan)], [ended(math.nan, 0.1)] * 2
    blown = [ended(2), ended(math.inf)]
    assert sorted([blown, lost, lucky, steady], key=score) == [steady, lucky, blown, lost]
    assert score([ended(4), ended(5)]) < score([ended(3), ended(7)])
    assert score([ended(4, 0.2), ended(6, 0.2)]) < score([ended(5, 0.2), ended(5, 0.3)]), "equal means: by quality"


def a_study(batches: int, optimizers: int, multiples: int, widen: int, seeds: int, study_seeds: int) -> Study:
    names = ("sgd", "lars", "larc")[:optimizers]
    return Study(
        "cosmoflow", "smoke", tuple(8 * 2**k for k in range(batches)), names, study_seeds, 4,
        {name: Rate(0.01, 64) for name in names}, tuple(0.5 * 2**k for k in range(multiples)),
        lr_search_seeds=seeds, lr_search_widen=widen, only={"larc": (8,)} if "larc" in names else {},
    )  # fmt: skip


STUDIES = st.builds(
    a_study, st.integers(1, 3), st.integers(1, 3), st.integers(2, 5), st.integers(0, 2), st.integers(1, 3),
    st.integers(1, 2),
)  # fmt: skip
ENDS = st.one_of(st.integers(1, 6).map(float), st.just(math.nan), st.just(math.inf))


@st.composite
def outcomes(draw: st.DrawFn) -> Callable[[str], RunStatus]:
    """What each run will come to, by its name; some crash."""
    salt = draw(st.integers(0, 2**32))
    slope = draw(st.sampled_from([0.0, -1.0, 1.0]))
    crashes = draw(st.booleans())

    @cache
    def outcome(name: str) -> RunStatus:
        chance = Random(f"{salt} {name}")
        if chance.random() < 0.1:
            return RunStatus("failed") if crashes and chance.random() < 0.7 else ended(math.inf)
        if chance.random() < 0.2:
            return ended(math.nan, chance.random())
        epochs = 20 + slope * 4 * math.log2(multiplier_of(name)) + chance.randrange(3)
        return ended(max(1.0, epochs), chance.random())

    return outcome


def multiplier_of(name: str) -> float:
    """Of a run."""
    found = re.search(r"-x([\d.]+)-", name)
    assert found
    return float(found[1])


def play(
    study: Study, outcome: Callable[[str], RunStatus], at_once: Callable[[int], int]
) -> Iterator[dict[str, RunStatus]]:
    """Make a study, so many of its due runs at a time; the status of all after each, checked for runs made twice."""
    statuses: dict[str, RunStatus] = {}
    while due := next_runs(study, statuses):
        yield dict(statuses)
        for run in due[: at_once(len(due))]:
            assert run.name not in statuses, f"{run.name} is made a second time"
            statuses[run.name] = outcome(run.name)
    yield statuses


@settings(max_examples=60, deadline=None)
@given(STUDIES, outcomes(), st.randoms(use_true_random=False))
def test_every_search_ends_within_its_bounds_and_the_same_whatever_the_order(
    study: Study, outcome: Callable[[str], RunStatus], chance: object
) -> None:
    """One command that makes all due runs in rounds, and one that is killed after any of them and begun again."""
    *_, together = play(study, outcome, lambda due: due)
    planned: set[str] = set()
    possible = set(possible_names(study))
    for statuses in play(study, outcome, lambda due: chance.randint(1, due)):  # type: ignore[attr-defined]
        now = {run.name for run in all_runs(study, statuses)}
        assert planned <= now <= possible, "what was planned stays planned"
        planned = now
    assert statuses == together
    assert planned == set(statuses), "every run that was made is one of the study"
    assert not any(count for _, count in left(study, statuses))
    for name in study.optimizers:
        found = search_of(study, name, statuses)
        assert found.widened <= study.lr_search_widen
        rows = [point for point in points(study) if point.optimizer == name]
        assert {point.batch for point in rows} == set(study.batches(name))
        for point in rows:
            tried = {trial.multiplier for trial in found.rows[point].trials if trial.number == 0}
            assert tried == set(found.window), "all rows of an optimizer widen together"
            grid = Grid(study.lr_search, study.lr_search_widen, study.lr_search_seeds)
            assert len(found.rows[point].trials) <= grid.most_runs
            if found.at_edge(point):
                assert found.widened == study.lr_search_widen, "an edge is left only where no widening is"


@settings(max_examples=40, deadline=None)
@given(STUDIES, outcomes())
def test_runs_that_failed_and_are_made_again_lead_to_the_same_end(
    study: Study, outcome: Callable[[str], RunStatus]
) -> None:
    """As ``resume`` does: what failed is forgotten, and then ends in another way."""

    def again(name: str) -> RunStatus:
        return ended(7.0) if outcome(name).status == "failed" else outcome(name)

    *_, once = play(study, again, lambda due: due)
    *_, statuses = play(study, outcome, lambda due: due)
    while True:
        statuses = {name: state for name, state in statuses.items() if state.status != "failed"}
        due = next_runs(study, statuses)
        if not due:
            break
        statuses |= {run.name: again(run.name) for run in due}
    assert {run.name for run in all_runs(study, statuses)} == set(once)
    assert {name: statuses[name] for name in once} == once


def test_search_seeds_are_none_of_the_study_s_and_old_folders_keep_their_names() -> None:
    study = a_study(1, 1, 3, 2, 3, 2)
    names = possible_names(study)
    assert len(names) == len(set(names)) == 7 * 3 + 7 * 2
    assert {"b8-sgd-x0.5-search", "b8-sgd-x8-search2", "b8-sgd-x0.125-search3", "b8-sgd-x8-seed2"} <= set(names)
    made = {run.name: run for states in play(study, lambda name: ended(3.0), len_of) for run in all_runs(study, states)}
    seeds = {run.seed for run in made.values() if run.is_search}
    assert seeds == {0, 10_001, 10_002}
    assert all(1 <= run.seed <= 10_000 for run in made.values() if not run.is_search)
    assert not PlannedRun(points(study)[0], 1.0, 10_000).is_search


def len_of(due: int) -> int:
    return due


def test_further_seeds_of_a_search_come_before_the_study_s_own() -> None:
    study = a_study(1, 2, 3, 0, 2, 1)
    made = {run.name: ended(3.0 if "x1-" in run.name else 4.0) for run in next_runs(study, {})}
    halved = {run.name: ended(3.0) for run in next_runs(study, made) if run.point.optimizer == "sgd"}
    due = next_runs(study, made | halved)
    assert [run.name for run in due] == ["b8-lars-x0.5-search2", "b8-lars-x1-search2", "b8-sgd-x1-seed1"]


def test_what_is_left_and_the_size_are_those_of_a_search_that_does_not_widen() -> None:
    study = a_study(2, 1, 4, 2, 2, 3)
    assert size(study) == (
        "cosmoflow smoke: 2 rows x 3 seeds + 12 runs that choose rates = 18 runs, up to 20 more if searches\n  widen"
    )
    assert [count for _, count in left(study, {})] == [4 + 2 + 3] * 2
    *_, statuses = play(study, lambda name: ended(3 + abs(math.log2(multiplier_of(name)))), len_of)
    assert len(statuses) == 18


@pytest.mark.parametrize(("name", "rows", "edges"), [("cosmoflow-batch", 12, 6), ("deepcam-batch", 12, 4)])
def test_a_recorded_study_keeps_its_own_search(name: str, rows: int, edges: int) -> None:
    folder = StudyFolder(RECORDED / name)
    definition = json.loads(folder.definition.read_text())
    assert "lr_search_widen" not in definition
    study = read_study(folder)
    assert (study.lr_search_seeds, study.lr_search_widen, study.only) == (1, 0, {})
    statuses = read_statuses(study, folder)
    found = read_rows(study, statuses)
    assert (len(found), sum(row.at_edge for row in found)) == (rows, edges)
    assert not next_runs(study, statuses)
    assert {len(row.search) for row in found if searches(study, row.point)} == {len(study.lr_search)}
    assert all(each.is_settled for each in all_searches(study, statuses).values())
