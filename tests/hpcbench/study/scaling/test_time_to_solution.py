"""Time to solution: throughput times epochs, with staging and start, in hours of nodes, cores and GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import EpochFit, fit_epochs
from hpcbench.study.scaling.phase_plots import costs, solution
from hpcbench.study.scaling.point_results import PointResult, RepeatResult
from hpcbench.study.scaling.solution_table import solution_sheets
from hpcbench.study.scaling.time_to_solution import cheapest, fastest, solutions

BATCHES = (8, 16, 32, 64, 128, 256)


def fit_of(*factors: float, batches: tuple[int, ...] = BATCHES) -> EpochFit:
    """E_min 10, B_crit 128, a run at each batch for each of the factors."""
    epochs = [(batch, 10 * (1 + batch / 128) * factor) for factor in factors for batch in batches]
    return fit_epochs([EpochRun(batch, each * (1 - 1e-9), each) for batch, each in epochs])


@cache
def exact() -> EpochFit:
    return fit_of(1.0)


@cache
def noisy() -> EpochFit:
    return fit_of(0.9, 1.1)


SAMPLES = 36_000


def row(nodes: int, batch: int, *rates: float, instances: int = 1, **more: int) -> PointResult:
    runs = [RepeatResult(nodes, batch, each, {}, instances=instances) for each in rates]
    return PointResult(nodes, "", runs, instances=instances, **more)


def test_a_run_is_its_epochs_and_what_comes_before_them() -> None:
    measured = RepeatResult(8, 128, 200.0, {}, init_s=20.0, staging_s=100.0)
    (found,) = solutions([PointResult(4, "", [measured], cores_per_node=48, gpus_per_node=2)], exact(), SAMPLES)
    assert found.epochs == pytest.approx(20)
    assert found.time_s == pytest.approx(20 * 36_000 / 200 + 120)
    assert found.node_hours == pytest.approx(4 * 3720 / 3600)
    assert found.core_hours == pytest.approx(48 * 4 * 3720 / 3600)
    assert found.gpu_hours == pytest.approx(2 * 4 * 3720 / 3600)
    assert (found.nodes, found.global_batch_size, found.extrapolated) == (4, 128, False)


def test_a_batch_at_which_no_run_reached_the_target_is_extrapolated() -> None:
    """Runs that missed it bound the line, and nobody has seen a training of that batch end."""
    missed = [EpochRun(512, 20.0, math.inf)] * 2
    fit = fit_epochs([*exact().runs, *missed])
    found = [solutions([row(1, batch, 100)], fit, SAMPLES)[0] for batch in (8, 256, 512)]
    assert [each.extrapolated for each in found] == [False, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", [1, 4])
def test_a_training_is_as_long_as_runs_that_end_at_evaluations(evaluations: int) -> None:
    """Runs whose epochs to the target are known, ended at the next evaluation."""
    draw, step, runs = np.random.default_rng(1), 1 / evaluations, []
    for batch in BATCHES:
        met = 4 * (1 + batch / 128) * np.exp(draw.normal(-(0.1**2) / 2, 0.1, 200))
        ended = np.ceil(met / step) * step
        runs += [EpochRun(batch, end - step, end) for end in ended.tolist()]
    (found,) = solutions([row(1, 64, 100)], fit_epochs(runs), SAMPLES)
    mean = 4 * (1 + 64 / 128) + step / 2
    assert np.mean([run.up_to for run in runs if run.batch_size == 64]) == pytest.approx(mean, rel=0.02)
    assert found.epochs == pytest.approx(mean, rel=0.01)
    assert found.epochs_interval[0] < mean < found.epochs_interval[1]
    assert found.time_s == pytest.approx(found.epochs * SAMPLES / 100)


def test_cores_and_gpus_that_are_not_known_have_no_hours() -> None:
    (found,) = solutions([row(4, 128, 200)], exact(), SAMPLES)
    assert (found.core_hours, found.gpu_hours) == (None, None)


def test_medians_are_over_repeats() -> None:
    repeats = [
        RepeatResult(1, 128, rate, {}, init_s=init, staging_s=staging)
        for rate, init, staging in ((200.0, 5.0, None), (100.0, 900.0, 60.0), (210.0, 7.0, 80.0))
    ]
    (found,) = solutions([PointResult(1, "", repeats)], exact(), SAMPLES)
    assert found.time_s == pytest.approx(20 * 36_000 / 200 + 7 + 70)


def test_evaluations_count_where_their_number_is_given() -> None:
    one = PointResult(1, "", [RepeatResult(1, 128, 200.0, {}, evaluation_s=3.0)])
    without, once, twice = (solutions([one], exact(), SAMPLES, number)[0].time_s for number in (0, 1, 2))
    assert (once - without, twice - without) == pytest.approx((20 * 3, 20 * 6))


def test_the_interval_has_that_of_epochs_and_of_repeats() -> None:
    (found,) = solutions([row(2, 128, 100, 200, 250)], noisy(), SAMPLES)
    low, high = (float(end) for end in noisy().band(128))
    assert found.epochs_interval == pytest.approx((low, high))
    logs = np.log([100, 200, 250])
    away = stats.t.ppf(0.975, 2) * logs.std(ddof=1) / math.sqrt(3)
    middle = found.epochs * SAMPLES / math.exp(logs.mean())
    below, above = math.hypot(math.log(found.epochs / low), away), math.hypot(math.log(high / found.epochs), away)
    assert found.time_interval == pytest.approx((middle * math.exp(-below), middle * math.exp(above)))
    assert found.node_hours_interval == pytest.approx(tuple(2 * end / 3600 for end in found.time_interval))


@pytest.mark.parametrize("repeats", [2, 3, 5])
@pytest.mark.parametrize(("of_epochs", "of_rate"), [(0.0, 0.05), (0.03, 0.05), (0.1, 0.02)])
def test_the_interval_holds_the_time_in_19_of_20_studies(repeats: int, of_epochs: float, of_rate: float) -> None:
    """Fits whose interval of 10 epochs holds them as often as it says, and repeats that scatter."""
    draw, held, studies = np.random.default_rng(repeats), 0, 1500
    for _ in range(studies):
        epochs = 10 * math.exp(of_epochs * draw.normal())
        ends = [np.float64(epochs * math.exp(sign * 1.96 * of_epochs)) for sign in (-1, 1)]
        fit = replace(exact(), e_min=epochs, slope=0.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EpochFit, "band", lambda self, batch, ends=ends: ends)
            (found,) = solutions([row(1, 64, *100 * np.exp(of_rate * draw.normal(size=repeats)))], fit, SAMPLES)
        held += found.time_interval[0] <= (10 + fit.delay) * SAMPLES / 100 <= found.time_interval[1]
    error = math.sqrt(0.05 * 0.95 / studies)
    assert held / studies >= 0.95 - 3 * error
    if of_epochs == 0:
        assert held / studies <= 0.95 + 3 * error


def test_a_single_repeat_has_no_interval_and_says_so() -> None:
    (found,) = solutions([row(2, 128, 100)], noisy(), SAMPLES)
    assert all(map(math.isnan, (*found.time_interval, *found.node_hours_interval)))
    assert not math.isnan(found.epochs_interval[0])
    (sheet,) = solution_sheets({"": [found]})
    assert (sheet.headers[4], sheet.lines[0][4]) == ("node-hours", "4.00")
    (several,) = solutions([row(4, 128, 190, 200, 210)], noisy(), SAMPLES)
    (sheet,) = solution_sheets({"": [found, several]})
    assert (sheet.headers[4], sheet.lines[0][4]) == ("node-hours (95 %)", "4.00")
    assert " to " in sheet.lines[1][4]


@given(
    rates=st.lists(st.floats(1, 1e5), min_size=2, max_size=5),
    batch=st.integers(1, 5000),
    instances=st.integers(1, 8),
    fit=st.sampled_from([exact, noisy]),
)
def test_the_estimate_is_in_its_interval(
    rates: list[float], batch: int, instances: int, fit: Callable[[], EpochFit]
) -> None:
    (found,) = solutions([row(8, batch, *rates, instances=instances)], fit(), SAMPLES)
    low, high = found.time_interval
    assert 0 <= low <= found.time_s <= high


def test_the_interval_of_equal_repeats_of_exact_epochs_is_a_point() -> None:
    (found,) = solutions([row(2, 128, 100, 100)], exact(), SAMPLES)
    # a spread of less than 0.1 % is not told from one
    assert found.time_interval == pytest.approx((found.time_s, found.time_s), rel=2e-3)


@pytest.mark.parametrize(("batch", "outside"), [(7, True), (8, False), (256, False), (257, True)])
def test_batches_outside_of_the_fit_are_extrapolated(batch: int, outside: bool) -> None:
    (found,) = solutions([row(1, batch, 10)], exact(), SAMPLES)
    assert found.extrapolated is outside


def test_instances_share_the_nodes_and_the_throughput() -> None:
    """Four trainings side by side take as long as one of them alone on its nodes, and each costs what that one does."""
    (alone,) = solutions([row(2, 64, 50, 60, cores_per_node=8)], noisy(), SAMPLES)
    (shared,) = solutions([row(8, 64, 200, 240, cores_per_node=8, instances=4)], noisy(), SAMPLES)
    hours = {"node_hours_interval": pytest.approx(alone.node_hours_interval)}
    assert shared == replace(alone, nodes=8, instances=4, **hours)
    one_lost = [replace(RepeatResult(6, 64, rate, {}), instances=3) for rate in (150, 180)]
    (found,) = solutions([PointResult(8, "", one_lost, instances=4, cores_per_node=8)], noisy(), SAMPLES)
    assert found == shared, "the others train as fast"


def test_strong_scaling_costs_more_and_a_large_batch_more_epochs() -> None:
    strong = solutions([row(4, 64, 300), row(1, 64, 100), row(2, 64, 190), PointResult(8, "", [])], exact(), SAMPLES)
    assert [each.nodes for each in strong] == [1, 2, 4]
    assert (cheapest(strong).nodes, fastest(strong).nodes) == (1, 4)
    # Ideal weak scaling: 8 times the throughput, 30 / 12.5 times the epochs from batch 32 to 256.
    weak = solutions([row(size, 32 * size, 100 * size) for size in (1, 2, 4, 8)], exact(), SAMPLES)
    assert weak[0].time_s / weak[-1].time_s == pytest.approx(8 * 12.5 / 30)
    assert weak[-1].node_hours / weak[0].node_hours == pytest.approx(30 / 12.5)


def test_equal_costs_are_decided_by_time_and_equal_times_by_cost() -> None:
    ideal = solutions([row(size, 64, 100 * size) for size in (1, 2, 4)], exact(), SAMPLES)
    assert np.ptp([each.node_hours for each in ideal]) < 1e-9
    same = [replace(each, node_hours=1.0) for each in ideal]
    assert cheapest(same).nodes == 4
    stuck = [replace(each, time_s=1.0) for each in solutions([row(n, 64, 100) for n in (4, 1, 2)], exact(), SAMPLES)]
    assert fastest(stuck).nodes == 1


def test_a_fit_without_numbers_gives_no_solutions() -> None:
    assert solutions([row(1, 64, 100)], fit_of(1.0, batches=(32, 64)), SAMPLES) == []


def test_a_fit_without_intervals_gives_solutions_without() -> None:
    """Of fewer than six batches; tables then show the figure alone, and plots no bar."""
    members = solutions(
        [row(size, 32 * size, 100 * size) for size in (1, 2)], fit_of(0.9, 1.1, batches=(32, 64, 128)), SAMPLES
    )
    assert [each.epochs for each in members] == pytest.approx([12.5, 15], rel=0.01)
    for each in members:
        assert all(map(math.isnan, (*each.epochs_interval, *each.time_interval, *each.node_hours_interval)))
    for name in ("time", "node_hours"):
        found = costs(members, name)
        assert found.tolist() == found[:, :1].repeat(3, axis=1).tolist()
    assert "nan" not in str(solution_sheets({"": members}))
    assert solution({"": members}) is not None
