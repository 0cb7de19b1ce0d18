"""How often the 95 % intervals of E_min and B_crit contain the truth, by simulated convergence studies.

``python benchmarks/interval_coverage.py`` writes ``benchmarks/results/interval_coverage.json``. Each setting is 300
studies with seven batches of 4 to 256 samples, E_min 2 and B_crit 60, evaluated eight times per epoch: 3 or 10 seeds
whose epochs spread by 5 or 20 % of their mean (a gamma distribution), with nothing else, with all runs cut at six
epochs (the largest two batches, 30 % of the runs, miss the target), or with batches that scatter by 15 % in addition
to their seeds (log-normal). Four more have six batches of 4 to 128 samples, such scatter, and runs cut at 4.5 epochs,
so that only the smallest four or five batches reach the target. Two more are evaluated only after whole epochs, with 10
seeds that spread by 20 %, and with 3 that spread by 5 %, of which many tie; studies in which evaluations hide the
spread have no intervals and are not counted. One more setting, without a bound, has studies without the runs that
missed the target. The exit code is 1 if a setting misses its bound.
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
SIX, SIX_CUT = BATCHES[:6], 4.5
"""Fewer batches, at the largest of which no run reaches the target."""
SCATTER = 0.15
KINDS = ("nothing else", "30 % censored", "scatter of 15 %")
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
    batches: tuple[int, ...] = BATCHES
    cut: float = math.inf
    """Epochs after which runs end."""

    @property
    def words(self) -> str:
        """Describe the setting in a line."""
        more = "" if self.evaluations_per_epoch == 8 else ", evaluated after whole epochs"
        more += ", without the runs that missed the target" if self.leave_out else ""
        more += f", {len(self.batches)} batches cut at {self.cut:g} epochs" if self.batches != BATCHES else ""
        return f"{self.seeds} seeds, spread {self.spread:.0%}, {self.kind}{more}"

    def simulate(self, trial: int) -> list[EpochRun]:
        """Simulate the runs of one study."""
        random = np.random.default_rng([trial, self.seeds, round(100 * self.spread)])
        runs, step = [], 1 / self.evaluations_per_epoch
        for batch in self.batches:
            mean = E_MIN * (1 + batch / B_CRIT)
            if self.kind.startswith("scatter"):
                mean *= math.exp(random.normal(-(SCATTER**2) / 2, SCATTER))
            for epochs in mean * random.gamma(self.spread**-2, self.spread**2, self.seeds):
                up_to = math.ceil(epochs / step) * step
                missed = up_to > self.cut
                runs.append(EpochRun(batch, self.cut, math.inf) if missed else EpochRun(batch, up_to - step, up_to))
        return [run for run in runs if run.reached] if self.leave_out else runs


def study(setting: Setting, trial: int) -> tuple[float, ...]:
    """Simulate and fit a study; return B_crit and the ends of both intervals."""
    fit = fit_epochs(setting.simulate(trial))
    return fit.b_crit, *fit.e_min_interval, *fit.b_crit_interval


def all_settings() -> tuple[list[Setting], list[Setting]]:
    """The settings with a bound, and those beside them without one."""
    seeds_and_spreads = [(seeds, spread) for seeds in (3, 10) for spread in (0.05, 0.2)]
    cut = {KINDS[1]: CUT}
    bounded = [Setting(*pair, kind, cut=cut.get(kind, math.inf)) for kind in KINDS for pair in seeds_and_spreads]
    bounded += [Setting(*pair, KINDS[2], batches=SIX, cut=SIX_CUT) for pair in seeds_and_spreads]
    bounded += [Setting(*pair, KINDS[0], evaluations_per_epoch=1) for pair in ((10, 0.2), (3, 0.05))]
    return bounded, [Setting(10, 0.2, KINDS[1], leave_out=True, cut=CUT)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trials", type=int, default=300)
    options = parser.parse_args()
    bounded, beside = all_settings()
    cases, missed = [], []
    with ProcessPoolExecutor() as pool:
        for setting in (*bounded, *beside):
            studies = np.array(list(pool.map(partial(study, setting), range(options.trials), chunksize=10)))
            b_crit, *ends = studies.T
            known = ~np.isnan(studies).any(1)  # studies with intervals
            pairs = [(low[known], high[known], truth) for low, high, truth in ((*ends[:2], E_MIN), (*ends[2:], B_CRIT))]
            held = [float(np.mean((low <= truth) & (truth <= high))) for low, high, truth in pairs]
            widths = [float(np.median(high - low)) / truth for low, high, truth in pairs]
            names = ("e_min", "b_crit")
            cut_at = None if math.isinf(setting.cut) else setting.cut
            cases.append({**asdict(setting), "cut": cut_at, "trials": options.trials,
                          "with_intervals": int(known.sum()),
                          "median_b_crit": float(np.median(b_crit)),
                          "coverage": dict(zip(names, held, strict=True)),
                          "median_width": dict(zip(names, widths, strict=True))})  # fmt: skip
            print(
                f"{setting.words}: E_min {held[0]:.1%} (width {widths[0]:.0%}), "
                f"B_crit {held[1]:.1%} ({widths[1]:.0%}), median B_crit {np.median(b_crit):.1f}",
                flush=True,
            )
            most = MOST if setting.kind == KINDS[0] and setting.evaluations_per_epoch > 1 else 1.0
            if setting in bounded and not all(LEAST <= share <= most for share in held):
                missed.append(setting.words)
    print(f"written to {write_results('interval_coverage', {'least': LEAST, 'most': MOST, 'settings': cases})}")
    sys.exit(f"missed: {'; '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
