"""How often the 95 % intervals of E_min and B_crit contain the truth, by simulated convergence studies.

``python benchmarks/interval_coverage.py`` writes ``benchmarks/results/interval_coverage.json``. Each setting is 300
studies with seven batches of 4 to 256 samples, E_min 2 and B_crit 60, evaluated eight times per epoch: 3 or 10 seeds
whose epochs spread by 5 or 20 % of their mean (a gamma distribution), with nothing else, with all runs cut at six
epochs (the largest two batches, 30 % of the runs, miss the target), or with batches that scatter by 15 % in addition
to their seeds (log-normal). Two more settings, without a bound, are studies evaluated only after whole epochs, and
studies without the runs that missed the target. The exit code is 1 if a setting misses its bound.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from _common import write_results

from hpcbench.study.epoch_run import EpochRun
from hpcbench.study.fit import fit_epochs

E_MIN, B_CRIT = 2.0, 60.0
BATCHES = (4, 8, 16, 32, 64, 128, 256)
CUT = 6.0
SCATTER = 0.15
LEAST, MOST = 0.90, 0.98


@dataclass(frozen=True)
class Setting:
    """What is simulated."""

    seeds: int
    spread: float
    kind: str
    """``nothing else``, ``30 % censored`` or ``scatter of 15 %``."""
    evaluations_per_epoch: int = 8
    leave_out: bool = False

    @property
    def words(self) -> str:
        """Describe the setting in a line."""
        more = "" if self.evaluations_per_epoch == 8 else ", evaluated after whole epochs"
        more += ", without the runs that missed the target" if self.leave_out else ""
        return f"{self.seeds} seeds, spread {self.spread:.0%}, {self.kind}{more}"

    def simulate(self, trial: int) -> list[EpochRun]:
        """Simulate the runs of one study."""
        random = np.random.default_rng([trial, self.seeds, round(100 * self.spread)])
        runs, step = [], 1 / self.evaluations_per_epoch
        for batch in BATCHES:
            mean = E_MIN * (1 + batch / B_CRIT)
            if self.kind.startswith("scatter"):
                mean *= math.exp(random.normal(-(SCATTER**2) / 2, SCATTER))
            for epochs in mean * random.gamma(self.spread**-2, self.spread**2, self.seeds):
                up_to = math.ceil(epochs / step) * step
                missed = self.kind.endswith("censored") and up_to > CUT
                runs.append(EpochRun(batch, CUT, math.inf) if missed else EpochRun(batch, up_to - step, up_to))
        return [run for run in runs if run.reached] if self.leave_out else runs


def study(setting: Setting, trial: int) -> tuple[float, ...]:
    """Simulate and fit a study; return B_crit and the ends of both intervals."""
    fit = fit_epochs(setting.simulate(trial))
    return fit.b_crit, *fit.e_min_interval, *fit.b_crit_interval


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=300)
    options = parser.parse_args()
    kinds = ("nothing else", "30 % censored", "scatter of 15 %")
    bounded = [Setting(seeds, spread, kind) for kind in kinds for seeds in (3, 10) for spread in (0.05, 0.2)]
    beside = [Setting(10, 0.2, kinds[0], evaluations_per_epoch=1), Setting(10, 0.2, kinds[1], leave_out=True)]
    cases, missed = [], []
    with ProcessPoolExecutor() as pool:
        for setting in (*bounded, *beside):
            studies = np.array(list(pool.map(partial(study, setting), range(options.trials), chunksize=10)))
            b_crit, *ends = studies.T
            known = ~np.isnan(studies).any(1)  # studies in which runs of six batches reached the target
            pairs = [(low[known], high[known], truth) for low, high, truth in ((*ends[:2], E_MIN), (*ends[2:], B_CRIT))]
            held = [float(np.mean((low <= truth) & (truth <= high))) for low, high, truth in pairs]
            widths = [float(np.median(high - low)) / truth for low, high, truth in pairs]
            names = ("e_min", "b_crit")
            cases.append({**asdict(setting), "trials": options.trials, "with_intervals": int(known.sum()),
                          "median_b_crit": float(np.median(b_crit)),
                          "coverage": dict(zip(names, held, strict=True)),
                          "median_width": dict(zip(names, widths, strict=True))})  # fmt: skip
            print(
                f"{setting.words}: E_min {held[0]:.1%} (width {widths[0]:.0%}), "
                f"B_crit {held[1]:.1%} ({widths[1]:.0%}), median B_crit {np.median(b_crit):.1f}",
                flush=True,
            )
            most = MOST if setting.kind == kinds[0] else 1.0
            if setting in bounded and not all(LEAST <= share <= most for share in held):
                missed.append(setting.words)
    print(f"written to {write_results('interval_coverage', {'least': LEAST, 'most': MOST, 'settings': cases})}")
    sys.exit(f"missed: {'; '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
