"""How close a projected score comes to the published one, and how often its interval contains it.

``python benchmarks/projection.py`` writes ``benchmarks/results/projection.json`` in seconds. Each closed time-to-train
entry of CosmoFlow and DeepCAM in v1.0 and v2.0 with a reference convergence point at its batch, or on both sides of it,
is projected as ``hpcbench project`` does: from the rate of its first run alone, and the epochs of that point times the
ratios of published entries of other sites to their own points. The projection is compared with the entry's score by the
rules. Entries with the logged recipe of the point are reported separately from others. The peer is the first run's own
time to train: what someone who has completed that run would expect.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from _common import write_results

from hpcbench.mlperf.convergence_check import RUNS
from hpcbench.mlperf.entries import score
from hpcbench.mlperf.entry import Entry
from hpcbench.mlperf.published import PublishedRun, published_runs
from hpcbench.mlperf.rulesets import ruleset_of_round
from hpcbench.prediction.entries import ModelEntry
from hpcbench.submission.projection import Costs, project, reference_epochs
from hpcbench.submission.published_ratios import is_reference_recipe, on_another_system, published_entries, ratios_of
from staging.errors import InputError

ROUNDS = ("v1.0", "v2.0")
MINUTE_S = 60.0


@dataclass(frozen=True)
class Judged:
    """An entry beside its projection, in minutes."""

    entry: str
    reference_recipe: bool
    score_min: float
    projected_min: float
    low_min: float
    high_min: float
    first_run_min: float

    @property
    def error(self) -> float:
        """Relative error of the projection against the score."""
        return abs(self.projected_min / self.score_min - 1)

    @property
    def peer_error(self) -> float:
        """Relative error of the first run's time against the score."""
        return abs(self.first_run_min / self.score_min - 1)

    @property
    def holds(self) -> bool:
        """Whether the interval contains the score."""
        return self.low_min <= self.score_min <= self.high_min


def entries() -> list[list[PublishedRun]]:
    """Return the runs of each entry, in the order of their logs."""
    groups: dict[tuple[object, ...], list[PublishedRun]] = {}
    for run in published_runs():
        assert isinstance(run, PublishedRun)
        if run.round in ROUNDS and run.division == "closed" and run.mode == "time to train" and not run.pruned:
            groups.setdefault((run.round, run.organization, run.system, run.application), []).append(run)
    return list(groups.values())


def judged(runs: Sequence[PublishedRun], published: Sequence[ModelEntry]) -> Judged | None:
    """Return the entry beside its projection, which uses no other entry of its site.

    Returns ``None`` without a point near its batch, a score, or the parts of its first run.
    """
    entry = Entry(list(runs))
    score(entry)
    first = runs[0]
    costs, ruleset = costs_of(first), ruleset_of_round(first.round)
    # Entries that converged too fast for the rules, which give them no score, are compared by their minutes.
    minutes = entry.withheld_min if entry.score_min is None else entry.score_min
    if minutes is None or ruleset is None or costs is None or first.time_to_train_s is None:
        return None
    assert first.application is not None
    assert first.global_batch_size is not None
    assert first.round is not None
    try:
        known, reference = reference_epochs(first.application, ruleset, first.global_batch_size)
    except InputError:
        return None
    same = is_reference_recipe(first.application, ruleset, first.global_batch_size, first.recipe)
    site = site_of(first, published)
    known = on_another_system(known, ratios_of([one for one in published if one.site != site], same), same)
    projected = project(known, costs, RUNS[first.application], reference)
    name = f"{first.round} {first.organization} {first.system} {first.application}"
    return Judged(name, same, minutes, projected.middle_min, projected.low_min, projected.high_min,
                  first.time_to_train_s / MINUTE_S)  # fmt: skip


def site_of(run: PublishedRun, published: Sequence[ModelEntry]) -> str | None:
    """Return the site of a run, as the entries name it."""
    where = (run.organization, run.system)
    return next((one.site for one in published if (one.organization, one.system) == where), run.organization)


def costs_of(run: PublishedRun) -> Costs | None:
    """Like ``measured_costs.read_costs`` for a run folder: over all epochs but the first; ``None`` below two epochs."""
    parts = (run.training_s, run.first_epoch_s, run.evaluation_s, run.first_evaluation_s, run.rest_s, run.epochs)
    if run.train_samples is None or None in parts:
        return None
    training, first, evaluation, first_evaluation, rest, epochs = (float(part or 0) for part in parts)
    if epochs < 2:
        return None
    epoch, check = (training - first) / (epochs - 1), (evaluation - first_evaluation) / (epochs - 1)
    fixed = (run.staging_s or 0.0) + rest + max(0.0, first - epoch) + max(0.0, first_evaluation - check)
    return Costs((run.train_samples / epoch,), check, fixed, run.train_samples)


def summary(group: Sequence[Judged]) -> dict[str, Any]:
    """Summarise the relative errors, and how many intervals contain the score."""
    return {
        "entries": len(group),
        "median_error": statistics.median(one.error for one in group),
        "largest_error": max(one.error for one in group),
        "within_interval": sum(one.holds for one in group),
        "median_error_of_first_run": statistics.median(one.peer_error for one in group),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    published = published_entries()
    judgements = [one for runs in entries() if (one := judged(runs, published)) is not None]
    groups = {"reference recipe": [one for one in judgements if one.reference_recipe],
              "another recipe": [one for one in judgements if not one.reference_recipe]}  # fmt: skip
    results: dict[str, Any] = {name: summary(group) for name, group in groups.items()}
    for name, figures in results.items():
        print(
            f"{name}: {figures['entries']} entries, off by {100 * figures['median_error']:.1f} % in the median and "
            f"{100 * figures['largest_error']:.1f} % at most, {figures['within_interval']} within the interval; the "
            f"first run's time is off by {100 * figures['median_error_of_first_run']:.1f} %"
        )
    results["entries"] = [asdict(one) for one in judgements]
    print(f"written to {write_results('projection', results)}")


if __name__ == "__main__":
    main()
