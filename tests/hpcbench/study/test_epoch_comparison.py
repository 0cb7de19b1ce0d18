"""Series are compared by an exact test: its p-values by enumeration, its errors and intervals by simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.results.units import significant
from hpcbench.study.epoch_comparison import Comparison, compare, holm, least_p, least_p_untied, p_value
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.series_comparison import (
    SeriesComparison,
    detectable_words,
    fewer_and_more,
    ratio_words,
    verdict,
)

STEP = 1 / 8
TRIALS = 300


def run(epochs: float, cut: float = math.inf, step: float = STEP) -> EpochRun:
    up_to = math.ceil(epochs / step) * step
    return EpochRun(8, cut, math.inf) if up_to > cut else EpochRun(8, up_to - step, up_to)


Strata = list[tuple[list[EpochRun], list[EpochRun]]]


def draw(
    random: np.random.Generator, ratio: float, seeds: int, batches: int, spread: float = 0.15, cut: float = math.inf
) -> Strata:
    """Epochs with a gamma distribution, whose mean grows with the batch."""
    found = []
    for batch in range(1, batches + 1):
        first, second = (
            [run(epochs, cut) for epochs in 3 * batch * times * random.gamma(spread**-2, spread**2, seeds)]
            for times in (ratio, 1.0)
        )
        found.append((first, second))
    return found


def enumerated(strata: Strata) -> float:
    """The p-value by giving the runs of every stratum to the two series in each possible way."""

    def score(first: list[EpochRun], second: list[EpochRun]) -> int:
        return sum((a.above >= b.up_to) - (a.up_to <= b.above) for a, b in product(first, second))

    ways = []
    for first, second in strata:
        runs = [*first, *second]
        chosen = combinations(range(len(runs)), len(first))
        ways.append([
            score([runs[i] for i in own], [runs[i] for i in range(len(runs)) if i not in own]) for own in chosen
        ])  # fmt: skip
    seen = abs(sum(score(*stratum) for stratum in strata))
    totals = [abs(sum(each)) for each in product(*ways)]
    return sum(total >= seen for total in totals) / len(totals)


SIZES = st.tuples(st.integers(1, 4), st.integers(1, 4))


@given(st.lists(SIZES, min_size=1, max_size=2), st.integers(0, 2**31), st.sampled_from([math.inf, 4.0]))
def test_the_p_value_is_that_of_all_permutations(sizes: list[tuple[int, int]], seed: int, cut: float) -> None:
    random = np.random.default_rng(seed)
    strata = [tuple([run(e, cut, 0.5) for e in random.uniform(1, 6, size)] for size in pair) for pair in sizes]
    assert p_value(strata) == pytest.approx(enumerated(strata))  # type: ignore[arg-type]


def test_three_seeds_apart_at_one_batch_say_nothing_and_at_six_they_do() -> None:
    apart = ([run(2.0), run(2.2), run(2.4)], [run(4.0), run(4.4), run(4.8)])
    one = compare([apart])
    assert one is not None
    assert one.p == pytest.approx(2 / 20)
    assert not one.differs
    assert (one.interval, one.detectable) == ((0.0, math.inf), math.inf)
    six = compare([apart] * 6)
    assert six is not None
    assert six.p == pytest.approx(2 / 20**6)
    assert six.differs
    assert six.interval[0] < 0.5 < six.interval[1] < 0.7
    assert (six.runs, six.batches) == (36, 6)


def test_a_missed_target_counts_as_more_epochs_than_were_made() -> None:
    missed = [EpochRun(8, 6.0, math.inf)] * 5
    found = compare([(missed, [run(e) for e in (2.0, 2.2, 2.1, 2.5, 2.3)])])
    assert found is not None
    assert found.p == pytest.approx(2 / 252)
    assert found.ratio > 2
    assert math.isinf(found.interval[1])
    assert found.interval[0] > 1
    both = compare([(missed, missed)])
    assert both is not None
    assert both.p == 1


def test_series_without_a_common_batch_are_not_compared() -> None:
    assert compare([([run(2.0)], []), ([], [run(2.0)])]) is None


@pytest.mark.parametrize(
    ("seeds", "batches", "cut"), [(5, 1, math.inf), (3, 6, math.inf), (5, 6, 12.0), pytest.param(8, 3, math.inf)]
)
def test_equal_series_are_told_apart_in_at_most_five_of_100_cases(seeds: int, batches: int, cut: float) -> None:
    random = np.random.default_rng([seeds, batches])
    found = sum(p_value(draw(random, 1.0, seeds, batches, cut=cut)) <= 0.05 for _ in range(TRIALS))
    assert found / TRIALS <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / TRIALS)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1.0, 1.4])
def test_the_interval_holds_the_ratio_and_what_can_be_seen_is_seen(ratio: float) -> None:
    random = np.random.default_rng(7)
    found = [compare(draw(random, ratio, 4, 4)) for _ in range(100)]
    held = [each for each in found if each is not None and each.interval[0] <= ratio <= each.interval[1]]
    assert len(held) / len(found) >= 0.90
    middle = float(np.median([each.ratio for each in found if each is not None]))
    assert middle == pytest.approx(ratio, rel=0.04)
    detectable = float(np.median([each.detectable for each in found if each is not None]))
    power = np.mean([p_value(draw(random, detectable, 4, 4)) <= 0.05 for _ in range(TRIALS)])
    assert 0.68 <= power <= 0.92


def test_exchanging_the_series_inverts_the_ratio() -> None:
    strata = draw(np.random.default_rng(4), 1.3, 5, 3)
    one, other = compare(strata), compare([(second, first) for first, second in strata])
    assert one is not None
    assert other is not None
    assert one.ratio == pytest.approx(1 / other.ratio)
    assert one.interval == pytest.approx((1 / other.interval[1], 1 / other.interval[0]))
    assert one.p == pytest.approx(other.p)
    assert other.inverted().interval == pytest.approx(one.interval)


def test_several_comparisons_have_p_values_for_all_of_them() -> None:
    def of(p: float, seeds: int = 5) -> Comparison:
        sizes = ((seeds, seeds),)
        return Comparison(1.0, (0.5, 2.0), p, sizes, sizes, 0.1, 0)

    assert [each.p for each in holm([of(0.04), of(0.01), of(0.03)])] == pytest.approx([0.06, 0.03, 0.06])
    assert [each.p for each in holm([of(0.9), of(0.8)])] == [1.0, 1.0]
    assert holm([]) == []
    few = holm([of(0.01), of(0.1, seeds=3), of(0.02), of(0.4, seeds=3)])
    assert [each.p for each in few] == pytest.approx([0.02, 0.1, 0.02, 0.4]), "three seeds give no p below 0.1"
    assert [each.together for each in few] == [2, 1, 2, 1]


@pytest.mark.parametrize(("sizes", "least"), [(((3, 3),), 2 / 20), (((3, 3), (3, 3)), 2 / 400), (((5, 5),), 2 / 252)])
def test_the_least_p_is_that_of_series_that_do_not_overlap(sizes: tuple[tuple[int, int], ...], least: float) -> None:
    assert least_p(sizes) == pytest.approx(least)
    strata = [
        ([run(2 + i / 4) for i in range(first)], [run(9 + i / 4) for i in range(second)]) for first, second in sizes
    ]
    assert p_value(strata) == pytest.approx(least)


WHOLE = st.lists(st.integers(0, 4), min_size=1, max_size=4)
"""Evaluations after whole epochs at which runs of one row met the target; many tie."""


def whole_epochs(met: list[int]) -> list[EpochRun]:
    return [EpochRun(8, epoch, epoch + 1 if epoch < 4 else math.inf) for epoch in met]


@given(st.lists(st.tuples(WHOLE, WHOLE), min_size=1, max_size=3))
def test_no_p_value_is_below_the_least_and_only_a_real_balance_is_found(
    drawn: list[tuple[list[int], list[int]]],
) -> None:
    """Or a comparison that Holm's adjustment leaves out could find something; ties make unlikely sums larger."""
    found = compare([(whole_epochs(first), whole_epochs(second)) for first, second in drawn])
    assert found is not None
    assert found.p >= found.least_p * (1 - 1e-9)
    if found.differs:
        pairs = [(a > b) - (a < b) for first, second in drawn for a, b in product(first, second)]
        assert (sum(pairs) > 0) == (found.balance > 0)
        first_fewer = fewer_and_more(SeriesComparison("first", "second", (8,), found)) == ("first", "second")
        assert first_fewer == (sum(pairs) < 0)


@pytest.mark.parametrize(("sizes", "untied"), [(((1, 4),), 0.4), (((2, 5),), 2 / 21), (((3, 4),), 2 / 35)])
def test_rows_of_unequal_sizes_have_a_least_p(sizes: tuple[tuple[int, int], ...], untied: float) -> None:
    (first, second), apart = sizes[0], [run(9 + i / 4) for i in range(4)]
    assert p_value([([run(2 + i / 4) for i in range(first)], [*apart, run(8)][:second])]) == pytest.approx(untied)
    assert least_p(sizes) == pytest.approx(untied / 2)
    assert least_p_untied(sizes) == pytest.approx(untied)
    tied = [([EpochRun(8, 6, math.inf)] * 3, [run(2.0)] * 4)]
    assert p_value(tied) == pytest.approx(1 / 35) == least_p(((3, 4),))


def test_the_series_with_fewer_epochs_is_named_though_evaluations_tie() -> None:
    """As many pairs tie as are decided, so the ratio in the middle is exactly 1."""
    lamb = [EpochRun(32, 1, 2)] * 9 + [EpochRun(32, 2, 3)]
    sgd = [EpochRun(32, 1, 2)] + [EpochRun(32, 2, 3)] * 9
    for names, strata in ((("lamb", "sgd"), (lamb, sgd)), (("sgd", "lamb"), (sgd, lamb))):
        found = compare([strata])
        assert found is not None
        assert found.ratio == 1
        said = verdict(SeriesComparison(*names, (32,), found))
        assert said.startswith("lamb needs fewer epochs than sgd at batch 32: sgd takes between 1.00 and 3.00 times as")


def test_what_is_detectable_among_several_comparisons_is_found_after_holm() -> None:
    """The ratio that is said to be found among ten is found in four of five studies, at a tenth of the level."""
    random = np.random.default_rng(11)
    studies = [compare(draw(random, 1.0, 4, 4)) for _ in range(50)]
    alone = float(np.median([each.detectable for each in studies if each is not None]))
    of_ten = float(np.median([replace(each, together=10).detectable for each in studies if each is not None]))
    assert of_ten > alone
    power = np.mean([10 * p_value(draw(random, of_ten, 4, 4)) <= 0.05 for _ in range(TRIALS)])
    assert 0.68 <= power <= 0.92
    assert np.mean([10 * p_value(draw(random, alone, 4, 4)) <= 0.05 for _ in range(TRIALS)]) < 0.6


def test_what_is_detectable_is_found_as_often_where_half_of_the_runs_miss_the_target() -> None:
    """The runs that reach it are the fast ones, which alone scatter by half as much as all do."""
    random = np.random.default_rng(3)

    def study(ratio: float) -> Strata:
        pairs = [[[run(3 * times * each, 3.0) for each in random.lognormal(0, 0.3, 4)] for times in (ratio, 1.0)]
                 for _ in range(4)]  # fmt: skip
        return [(first, second) for first, second in pairs]

    found = [compare(study(1.0)) for _ in range(50)]
    detectable = float(np.median([each.detectable for each in found if each is not None]))
    power = np.mean([p_value(study(detectable)) <= 0.05 for _ in range(TRIALS)])
    assert 0.68 <= power <= 0.92


def test_a_series_that_never_reaches_the_target_gives_a_bound_of_the_ratio() -> None:
    """The middle of the factors that suit the runs is then the end of the training, which says nothing of the ratio."""
    missed = [EpochRun(8, 6.0, math.inf)] * 5
    reached = [run(e) for e in (2.0, 2.2, 2.1, 2.5, 2.3)]
    found, known = compare([(missed, reached)]), compare([(reached, [run(3.0)] * 5)])
    assert found is not None
    assert known is not None
    assert (found.is_bound, known.is_bound) == (True, False)
    assert ratio_words(found) == f"at least {significant(found.interval[0])}"
    assert ratio_words(found.inverted()) == f"at most {significant(1 / found.interval[0])}"
    neither = compare([(missed, missed)])
    assert neither is not None
    assert ratio_words(neither) == "open"
    assert detectable_words(neither) == "not known"
