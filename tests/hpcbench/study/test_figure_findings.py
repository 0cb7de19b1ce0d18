"""What a convergence study and its plots are said to show: the tests decide, and factors are those of the runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.study.convergence import read_statuses, report
from hpcbench.study.definition import Borrow, Study
from hpcbench.study.epoch_comparison import Comparison
from hpcbench.study.figure_findings import (
    compared_finding,
    epochs_finding,
    factor_words,
    headline,
    layers_finding,
    missed_finding,
    quality_finding,
    search_finding,
    steps_finding,
    time_finding,
)
from hpcbench.study.findings import findings, verdicts
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.lr_search import Choice
from hpcbench.study.rates import Rate
from hpcbench.study.results import Row, read_curves, read_rows
from hpcbench.study.series_comparison import SeriesComparison, compare_series
from tests.hpcbench.study.conftest import FakeLauncher, make

LOST = 99.0
MANY = ((6, 6),) * 3
"""Runs of both series at three batch sizes: enough to find a difference."""


def studied(
    folder: Path, epochs: Callable[[str, int], float], seeds: int = 2, borrow: tuple[Borrow, ...] = ()
) -> tuple[StudyFolder, Study]:
    """A study of sgd and lars at batches 8, 32 and 128; ``epochs`` says how many epochs its runs take."""
    rates = {"sgd": Rate(0.01, 64), "lars": Rate(0.1, 64)}
    study = Study("cosmoflow", "smoke", (8, 32, 128), ("sgd", "lars"), seeds, 4, rates, borrow=borrow)
    place = StudyFolder(folder / "study")

    def epochs_of(settings: dict[str, str]) -> float:
        batch = int(settings["train.local_batch_size"]) * int(settings.get("parallel.simulated_ranks", 1))
        return epochs(settings["optim.name"], batch)

    with held(place):
        place.write(study.as_dict())
        make(study, place, FakeLauncher(epochs_of))
    return place, study


def rows_of(place: StudyFolder, study: Study) -> list[Row]:
    return read_rows(study, read_statuses(study, place))


@pytest.mark.slow
def test_factors_are_of_the_widest_range_of_batches(tmp_path: Path) -> None:
    """sgd from 4 epochs to 16; lars, which misses the target at 128, only from 4 to 8."""
    place, study = studied(tmp_path, lambda name, batch: LOST if (name, batch) == ("lars", 128) else
                           {8: 4, 32: 8, 128: 16}[batch])  # fmt: skip
    rows = rows_of(place, study)
    assert epochs_finding(rows) == (
        "From batch 8 to 128, 4.00x the epochs (sgd); lars does not reach the target at batch 128"
    )
    assert steps_finding(rows) == "From batch 8 to 128, 4.00x the samples (sgd) and 0.250x the steps (sgd)"
    assert missed_finding(rows) == "lars does not reach the target at batch 128"
    assert quality_finding(rows, read_curves(place, rows)) == "10 of 12 runs reach the target of 0.3"
    alone = [row for row in rows if row.point.optimizer == "sgd"]
    assert epochs_finding(alone).startswith("From batch 8 to 128, 4.00x the epochs")
    assert epochs_finding(alone[:1]) == "4.00 epochs to the target on average"
    with held(place):
        report(place)
    page = place.page.read_text(encoding="utf-8")
    lead = headline(rows, compare_series(rows))
    assert lead == "No difference in epochs is found between sgd and lars"
    assert f"<h1>{lead}</h1>" in page
    assert f"<title>cosmoflow smoke: {lead}</title>" in page
    assert re.search('aria-label="Epochs to target against batch size: From batch 8 to 128, 4.00x the epochs', page)


def test_a_batch_at_which_nothing_reaches_the_target_is_named(tmp_path: Path) -> None:
    place, study = studied(tmp_path, lambda name, batch: LOST if batch > 8 else 4 if name == "sgd" else 6, seeds=1)
    rows = rows_of(place, study)
    assert missed_finding(rows) == "No run reaches the target at batches 32 and 128"
    assert epochs_finding(rows) == "No run reaches the target at batches 32 and 128"
    assert missed_finding([row for row in rows if row.point.batch > 8]) == "No run reaches the target"
    assert headline(rows, []) == "No run reaches the target at batches 32 and 128"
    assert steps_finding(rows) == "16,400 to 24,600 samples to the target on average"
    lost = [row for row in rows if row.point.batch > 8]
    assert headline(lost, [pair("sgd", "lars", 0.5, 0.01)]) == "No run reaches the target", "whatever the tests say"
    assert steps_finding(lost) == ""


def pair(
    first: str, second: str, ratio: float, p: float, sizes: tuple[tuple[int, int], ...] = MANY
) -> SeriesComparison:
    """Epochs of the first series over those of the second."""
    return SeriesComparison(
        first, second, (8, 32, 128), Comparison(ratio, (0.1, 2.0), p, sizes, sizes, 0.1, 3 if ratio > 1 else -3)
    )


def test_a_series_wins_only_where_the_test_says_so() -> None:
    where = "3 batches, 8 to 128"
    lamb = [pair("lamb", "lars", 0.5, 0.01), pair("sgd", "lamb", 3.0, 0.02)]
    said = f"lamb needs fewer epochs than lars and sgd at {where}"
    assert compared_finding([*lamb, pair("lars", "sgd", 0.9, 0.6)]) == said
    assert compared_finding([lamb[0], pair("sgd", "lamb", 3.0, 0.2)]) == f"lamb needs fewer epochs than lars at {where}"
    adamw = [pair("lars", "adamw", 3.0, 0.01), pair("adamw", "sgd", 0.5, 0.03), pair("adamw", "larc", 0.5, 1.0)]
    several = [*lamb, *adamw, pair("sgd", "lars", 0.5, 0.001)]
    assert compared_finding(several) == f"lamb and adamw need fewer epochs than lars and sgd at {where}"
    unseen = [pair("lamb", "lars", 0.5, 0.08)]
    assert compared_finding(unseen) == "No difference in epochs is found between lamb and lars"
    few = [pair("lamb", "lars", 0.5, 1.0, ((1, 1),))]
    assert compared_finding(few) == "Too few seeds to tell lamb and lars apart"
    same = SeriesComparison("a", "b", (8,), None)
    assert compared_finding([same]) == ""
    assert compared_finding([same, *unseen]) == "No difference in epochs is found between lamb and lars"


def test_series_with_the_same_factor_are_not_named_as_if_they_differed() -> None:
    ends = {"sgd": (8, 128, 4.0), "adamw": (8, 128, 4.001)}
    assert factor_words(ends, "the epochs") == "From batch 8 to 128, 4.00x the epochs"
    assert factor_words({**ends, "lamb": (8, 128, 4.2)}, "the steps") == (
        "From batch 8 to 128, 4.00x (sgd) to 4.20x (lamb) the steps"
    )


def test_shortest_times_are_at_their_ranks() -> None:
    assert time_finding({"sgd": 8}) == "The time to the target is shortest on 8 ranks"
    assert time_finding({"sgd": 8, "lars": 8}) == "The time to the target is shortest on 8 ranks with every series"
    assert time_finding({"sgd": 8, "lars": 32}) == "The time to the target is shortest on 8 (sgd) to 32 ranks (lars)"


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ((), "Every chosen rate lies between others that were tried"),
        ((8,), "The chosen rate of sgd at batch 8 is at an edge of what was tried"),
        ((8, 32), "The chosen rates of sgd at batches 8 and 32 are at an edge of what was tried"),
    ],
)
def test_rates_at_the_edge_of_a_search_are_named(tmp_path: Path, edges: tuple[int, ...], said: str) -> None:
    place, study = studied(tmp_path, lambda name, batch: 4, seeds=1)
    chosen = [replace(row, search=row.runs, choice=Choice(1.0), at_edge=row.point.batch in edges)
              for row in rows_of(place, study) if row.point.optimizer == "sgd"]  # fmt: skip
    assert search_finding(chosen) == said
    blocked = [replace(row, choice=Choice(None, blocked=True)) for row in chosen]
    assert search_finding([blocked[0], *chosen[1:]]) == (
        "No rate is chosen for sgd at batch 8: runs of its search failed"
    )
    assert search_finding([*blocked[:2], *chosen[2:]]) == (
        "No rates are chosen for sgd at batches 8 and 32: runs of searches failed"
    )
    diverged = [replace(chosen[0], choice=Choice(1.0, failed=True)), *chosen[1:]]
    assert search_finding(diverged) == "Every run of the search of sgd at batch 8 diverged"
    assert search_finding([replace(chosen[0], choice=Choice(None)), *chosen[1:]]) == "2 of 3 searches are done"


def test_the_change_of_layers_is_compared_between_batches(tmp_path: Path) -> None:
    place, study = studied(tmp_path, lambda name, batch: 4, seeds=1)
    first, *_, last = [row for row in rows_of(place, study) if row.point.optimizer == "lars"]
    tables = [pd.DataFrame({"change": [change] * 3}) for change in (0.01, 0.05)]
    drawn = {"lars": [(first, True, tables[0]), (last, True, tables[1])]}
    assert layers_finding(drawn) == "From batch 8 to 128, 5.00x the change of a layer in a step"
    assert layers_finding({"lars": drawn["lars"][:1]}) == ""


@pytest.mark.slow
def test_what_a_borrowed_rate_costs_is_told_at_each_batch(tmp_path: Path) -> None:
    """All rows of a batch take alike here, so that every ratio is 1, and three seeds show nothing at one batch."""
    borrow = (Borrow("8", 32), Borrow("8", 128))
    place, study = studied(tmp_path, lambda name, batch: {8: 4, 32: 8, 128: 16}[batch], 3, borrow)
    compared = [pair for pair in compare_series(rows_of(place, study)) if pair.first == "sgd from 8"]
    assert [(pair.second, pair.batches) for pair in compared] == [
        ("sgd", (32, 128)), ("sgd", (32,)), ("sgd", (128,)),
    ]  # fmt: skip
    said = [words for words in findings(rows_of(place, study), compared) if "from 8" in words]
    chance = "too few seeds to see whether that is chance"
    assert f"sgd from 8 takes 1.00 times the epochs of sgd at batch 32; {chance}." in said


def test_many_comparisons_with_too_few_seeds_share_a_sentence() -> None:
    few = [pair("sgd", other, 0.9, 1.0, ((3, 3),)) for other in ("a", "b", "c", "d", "e")]
    decided = pair("lamb", "lars", 0.5, 0.01)
    assert len(verdicts([decided, *few[:4]])) == 5
    said = verdicts([few[0], decided, *few[1:]])
    assert said[0].startswith("lamb needs fewer epochs than lars")
    assert said[1:] == [
        "5 comparisons, such as sgd with a at 3 batches, 8 to 128, have too few seeds to see any difference; the table "
        "has their ratios."
    ]
