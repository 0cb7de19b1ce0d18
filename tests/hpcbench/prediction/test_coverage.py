"""How often intervals of a prediction hold what comes, by simulation: each statistic at the counts that it has."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpcbench.batch.machine import Machine
from hpcbench.prediction.calibration import Calibration, measured_entry
from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.epochs import Epochs, other_scatter, pooled
from hpcbench.prediction.factor import Prior, fit_factor
from hpcbench.prediction.fitted import Fitted, Spread, fit, growth_pairs, round_pairs, staging_spread
from hpcbench.prediction.forecast import forecast
from hpcbench.prediction.held_out import training_of
from hpcbench.prediction.platforms import FEWEST_ALIKE, known_range, like

SITES = (8, 1, 4, 10, 4)
"""Tuned entries of each site: those of the published rounds."""
LOW, HIGH = 0.1, 0.9


@pytest.mark.slow  # 150 fits with their sites left out: 10 s
@pytest.mark.parametrize("between", [0.15, 0.5])
def test_a_new_site_lies_within_the_interval_of_a_factor_at_least_as_often_as_it_says(between: float) -> None:
    """Its spread is of sites left out, which is of parameters, too; so draws of those make it wider than it need be."""
    random = np.random.default_rng(5)
    priors = (Prior("level", 1.0, 3.0, per_application=True), Prior("power", 0.0, 1.0, log=False))
    names = [str(site) for site, count in enumerate(SITES) for _ in range(count)]
    inside, trials = 0, 75
    for _ in range(trials):
        application = random.integers(0, 2, len(names) + 1)
        x = random.uniform(0, 3, len(names) + 1)
        own = between * random.standard_normal(len(SITES) + 1)
        true = own[[*map(int, names), len(SITES)]] + 0.7 * x + 0.05 * random.standard_normal(len(x))

        def model(parameters, which, application=application, x=x):  # type: ignore[no-untyped-def]
            level = parameters["level"][..., application[which]]
            return np.log(level) + parameters["power"][..., None] * x[which]

        found = fit_factor(priors, 2, model, true[:-1], names)
        draws = model(found.draw(random, 2000), np.array([len(names)]))[:, 0] + found.noise(random, 2000)
        low, high = np.quantile(draws, (LOW, HIGH))
        inside += low <= true[-1] <= high
    assert 0.75 <= inside / trials <= 0.98


@pytest.mark.parametrize("count", [4, 10])
def test_another_recipe_lies_within_its_interval_as_often_as_it_says(count: int) -> None:
    random, inside, trials = np.random.default_rng(6), 0, 3000
    for _ in range(trials):
        own = 0.2 * random.standard_normal(count + 1)
        groups = [own[number] + 0.03 * random.standard_normal(random.integers(1, 5)) for number in range(count)]
        middle, spread, freedom = other_scatter([group.tolist() for group in groups])
        drawn = Epochs(math.exp(middle), spread, 0.0, "another recipe", "", freedom).draw(random, 400)
        low, high = np.quantile(drawn, (LOW, HIGH))
        inside += low <= math.exp(own[-1]) <= high
    assert 0.77 <= inside / trials <= 0.85


def test_the_published_recipes_are_ten(fitted: Fitted) -> None:
    assert fitted.epochs.other_freedom == 9
    assert other_scatter([[0.1, 0.3]]) == pytest.approx((0.2, 0.1 * math.sqrt(1 + math.pi / 2), 1))


def test_runs_of_one_recipe_lie_within_their_interval_as_often_as_it_says(fitted: Fitted) -> None:
    """Two sources of ten and five runs are known, and the mean of ten runs of a third is asked for."""
    random, spreads, inside, trials = np.random.default_rng(8), fitted.epochs, 0, 3000
    for _ in range(trials):
        groups = [20 * np.exp(spreads.sources * random.standard_normal() + spreads.seeds * random.standard_normal(size))
                  for size in (10, 5, 10)]  # fmt: skip
        drawn = pooled([tuple(group) for group in groups[:2]], spreads, "same recipe", "").draw(random, 400, 10)
        low, high = np.quantile(drawn, (LOW, HIGH))
        inside += low <= groups[2].mean() <= high
    assert 0.77 <= inside / trials <= 0.83


def test_a_range_of_machines_holds_another_as_often_as_it_says(machines: dict[str, Machine]) -> None:
    random = np.random.default_rng(10)
    values = np.exp(random.standard_normal((20_000, FEWEST_ALIKE + 1)))
    ranges = [known_range(row[:-1]) for row in values]
    inside = np.mean([fact.low <= row[-1] <= fact.high for fact, row in zip(ranges, values, strict=True)])
    assert inside == pytest.approx(0.8, abs=0.01)
    # three machines with V100 state their network: too few, so all do
    known = list(machines.values())
    assert len(like(machines["abci"], known, "network_gb_s")) > FEWEST_ALIKE
    alike = like(machines["horeka"], known, "network_gb_s")
    assert len(alike) == FEWEST_ALIKE == sum(machine.network_gb_s is not None and "A100" in (machine.accelerator or "")
                                            for machine in known)  # fmt: skip


def test_a_spread_of_few_sites_holds_a_new_one_as_often_as_it_says() -> None:
    random, inside, trials = np.random.default_rng(9), 0, 4000
    for _ in range(trials):
        *known, new = 0.8 * random.standard_normal(5)
        spread = Spread(float(np.sqrt(np.mean(np.square(known)))), 4)
        low, high = np.quantile(spread.draw(random, 400), (LOW, HIGH))
        inside += low <= new <= high
    assert inside / trials == pytest.approx(0.8, abs=0.02)


def test_a_staging_at_another_size_is_known_by_what_other_systems_had(fitted: Fitted) -> None:
    """One system's stagings at two sizes differ as those of two sites do; those of one size are close."""
    grown, again = fitted.staging_growth, fitted.staging_repeat
    assert grown.value > fitted.data_staging.spread > 2 * again.value
    assert (grown.sites, again.sites) == (4, 3)
    small, large = next((one, other) for one, other in growth_pairs(fitted.entries) if one.tuned and one.stages_first)
    calibration = Calibration((measured_entry(small),))
    widths = {}
    for entry in (small, large):
        interval = forecast(fitted, training_of(entry, fitted, fitted.entries), calibration).staging
        widths[entry.nodes] = math.log(interval.high / interval.low) / 2
    # quantiles of Student's t with the sites as its freedom, and what is left of the parameters
    assert widths[small.nodes] == pytest.approx(1.638 * again.value, rel=0.1)
    assert widths[large.nodes] == pytest.approx(1.533 * grown.value, rel=0.1)


def test_without_two_stagings_of_a_system_the_models_own_spread_counts(fitted: Fitted) -> None:
    assert staging_spread(fitted.data_staging, []) == Spread(fitted.data_staging.spread, fitted.data_staging.sites)


@pytest.mark.slow  # a fit without each site: 5 s
def test_most_stagings_at_a_larger_size_lie_within_their_interval(entries: tuple[ModelEntry, ...]) -> None:
    inside = []
    for small, large in [*growth_pairs([one for one in entries if one.tuned]), *round_pairs(entries)]:
        others = [entry for entry in entries if entry.site != large.site]
        fitted = fit(others)
        found = forecast(fitted, training_of(large, fitted, others), Calibration((measured_entry(small),)))
        inside.append(found.staging.holds(large.data_staging_s))
    assert len(inside) == 11
    assert sum(inside) >= 7
