"""How often comparisons of series, and trends of the spread between seeds, are right, by simulated convergence studies.

``python benchmarks/comparison_coverage.py`` writes ``benchmarks/results/comparison_coverage.json``. Epochs have a gamma
distribution about 3, 6, 9, ... at the batches of a study, and are known to lie between two of eight evaluations per
epoch. At most 5 % of equal series may be found different; the interval of a ratio of 1.4 contains it in at least 90 %
of studies; the ratio that is said to be detectable is found in 70 to 90 %, also by one of ten comparisons made
together, after Holm's adjustment for all of them. A trend of the spread is seen in at most 5 %
of studies without one, and its interval contains the truth in at least 90 %. Three standard errors of that many studies
are allowed. The exit code is 1 if a setting misses its bound.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from _common import write_results

from hpcbench.study.epoch_comparison import compare, p_value
from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.seed_spread import spread_trend

STEP = 1 / 8
LEVEL, LEAST, POWER = 0.05, 0.90, (0.70, 0.90)
RATIO, GROWTH, TOGETHER = 1.4, 3.0, 10


@dataclass(frozen=True)
class Setting:
    """A simulated study."""

    seeds: int
    batches: int
    spread: float
    cut: float = math.inf
    """Epochs after which runs end, whether they reached the target or not."""

    def epochs(self, random: np.random.Generator, batch: int, times: float = 1.0, spread: float = 0.0) -> list[float]:
        """Draw the exact epochs of the seeds at batch number ``batch``."""
        shape = (spread or self.spread) ** -2
        return list(3 * batch * times * random.gamma(shape, 1 / shape, self.seeds))

    def runs(self, random: np.random.Generator, batch: int, times: float) -> list[EpochRun]:
        """Return what the evaluations say about the epochs of runs at batch number ``batch``."""
        runs = []
        for epochs in self.epochs(random, batch, times):
            up_to = math.ceil(epochs / STEP) * STEP
            runs.append(
                EpochRun(batch, self.cut, math.inf) if up_to > self.cut else EpochRun(batch, up_to - STEP, up_to)
            )
        return runs

    def strata(self, random: np.random.Generator, ratio: float) -> list[tuple[list[EpochRun], list[EpochRun]]]:
        """Return two series whose epochs have this ratio."""
        return [
            (self.runs(random, batch, ratio), self.runs(random, batch, 1.0)) for batch in range(1, self.batches + 1)
        ]


def comparison(setting: Setting, trial: int) -> tuple[bool, bool, float, float, float, float]:
    """Whether equal series differ, whether the interval contains the ratio, its ends, and the detectable ratios."""
    random = np.random.default_rng([trial, setting.seeds, setting.batches])
    equal = p_value(setting.strata(random, 1.0)) <= LEVEL
    ratio_estimate = compare(setting.strata(random, RATIO))
    assert ratio_estimate is not None
    low, high = ratio_estimate.interval
    among = replace(ratio_estimate, together=TOGETHER).detectable
    return equal, low <= RATIO <= high, low, high, ratio_estimate.detectable, among


def is_found(setting: Setting, ratio: float, together: int, trial: int) -> bool:
    """Whether a study finds a ratio by one of so many comparisons, of which no other finds anything."""
    random = np.random.default_rng([trial, setting.seeds, setting.batches, together])
    return together * p_value(setting.strata(random, ratio)) <= LEVEL


def trend(setting: Setting, growth: float, trial: int) -> tuple[bool, bool]:
    """Whether a trend of the spread is seen, and whether its interval contains the growth."""
    random = np.random.default_rng([trial, setting.seeds, round(growth), 2])
    rows = []
    for batch in range(1, setting.batches + 1):
        here = setting.spread * growth ** ((batch - 1) / (setting.batches - 1))
        epochs = setting.epochs(random, batch, spread=here)
        rows.append((2**batch, [math.ceil(exact_epochs / STEP) * STEP for exact_epochs in epochs]))
    spread_growth = spread_trend(rows, STEP)
    return (
        (False, True)
        if spread_growth is None
        else (spread_growth.changes, spread_growth.interval[0] <= growth <= spread_growth.interval[1])
    )


def measure(setting: Setting, trials: int, pool: ProcessPoolExecutor) -> dict[str, Any]:
    """Measure all shares of one setting."""
    outcomes = list(pool.map(partial(comparison, setting), range(trials), chunksize=10))
    equal, held, low, high, *detectable = (np.array(column) for column in zip(*outcomes, strict=True))
    powers: dict[str, float | None] = {}
    for name, together, ratios in (("", 1, detectable[0]), ("_among_ten", TOGETHER, detectable[1])):
        ratio = float(np.median(ratios))
        known = math.isfinite(ratio)
        found = partial(is_found, setting, ratio, together)
        powers[f"detectable{name}"] = ratio if known else None
        powers[f"power{name}"] = float(np.mean(list(pool.map(found, range(trials), chunksize=10)))) if known else None
    bounded = (low > 0) & np.isfinite(high)
    entry: dict[str, Any] = {
        **asdict(setting), "cut": None if math.isinf(setting.cut) else setting.cut, "trials": trials,
        "equal_told_apart": float(equal.mean()), "coverage": float(held.mean()),
        "median_width": float(np.median(high[bounded] / low[bounded])) if bounded.mean() > 0.5 else None,
        **powers,
    }  # fmt: skip
    if setting.batches > 2 and math.isinf(setting.cut):
        for name, growth in (("no_trend", 1.0), ("trend", GROWTH)):
            seen, right = zip(*pool.map(partial(trend, setting, growth), range(trials), chunksize=10), strict=True)
            entry |= {f"{name}_seen": float(np.mean(seen)), f"{name}_coverage": float(np.mean(right))}
    return entry


def misses(entry: dict[str, Any]) -> list[str]:
    """List the bounds that a setting misses by more than three standard errors."""
    allow = 3 / math.sqrt(entry["trials"])
    most = LEVEL + allow * math.sqrt(LEVEL * (1 - LEVEL))
    least = LEAST - allow * math.sqrt(LEAST * (1 - LEAST))
    missed_bounds = [name for name in ("equal_told_apart", "no_trend_seen") if entry.get(name, 0) > most]
    missed_bounds += [
        name for name in ("coverage", "no_trend_coverage", "trend_coverage") if entry.get(name, 1) < least
    ]
    powers = {name: entry[name] for name in ("power", "power_among_ten") if entry[name] is not None}
    return missed_bounds + [
        name for name, power in powers.items() if not POWER[0] - allow / 2 <= power <= POWER[1] + allow / 2
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=300)
    options = parser.parse_args()
    settings = [Setting(seeds, batches, spread) for seeds in (3, 5, 10) for batches in (1, 6) for spread in (0.05, 0.2)]
    settings += [Setting(seeds, 6, 0.2, cut=15.0) for seeds in (3, 5, 10)]
    entries, missed = [], []
    with ProcessPoolExecutor() as pool:
        for setting in settings:
            entry = measure(setting, options.trials, pool)
            entries.append(entry)
            print({name: value for name, value in entry.items() if value is not None}, flush=True)
            if which := misses(entry):
                missed.append(f"{setting}: {', '.join(which)}")
    bounds = {
        "level": LEVEL,
        "least_coverage": LEAST,
        "power": POWER,
        "ratio": RATIO,
        "growth": GROWTH,
        "together": TOGETHER,
    }
    print(f"written to {write_results('comparison_coverage', {**bounds, 'settings': entries})}")
    sys.exit(f"missed: {'; '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
