"""The runs of a gains study: blocks in an order of chance, equal samples, and what is due."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

from hpcbench.study.gains.options import combined
from hpcbench.study.gains.plan import AGAIN, PlannedRun, alone, due, run_settings, together
from hpcbench.study.run_status import RunStatus
from tests.hpcbench.study.gains.conftest import gains


def blocks(runs: list[PlannedRun], size: int) -> list[list[str]]:
    """The names of options in every repeat, in their order."""
    return [[run.option.name for run in runs[start : start + size]] for start in range(0, len(runs), size)]


def test_a_repeat_has_the_baseline_and_every_option_once_and_the_same_seed() -> None:
    study = gains()
    size = len(study.options) + 1
    runs = alone(study)
    for number, names in enumerate(blocks(runs, size), start=1):
        assert sorted(names) == sorted(["baseline", *(each.name for each in study.options)])
        seeds = {run_settings(study, run)["train.seed"] for run in runs[(number - 1) * size : number * size]}
        assert seeds == {str(number)}


def test_the_order_is_of_chance_and_the_same_whenever_asked() -> None:
    study = gains(repeats=300)
    size = len(study.options) + 1
    orders = blocks(alone(study), size)
    assert orders == blocks(alone(study), size)
    assert len({tuple(each) for each in orders[:20]}) == 20
    # Positions are uniform: their mean has the standard error sqrt((n^2 - 1) / 12 / 300), here 0.23.
    for name in ("baseline", "bf16", "ranks-1"):
        assert abs(fmean(order.index(name) for order in orders) - (size - 1) / 2) < 4 * 0.23


def test_every_run_has_the_same_samples_on_all_cores() -> None:
    study = gains()
    for run in alone(study):
        found = run_settings(study, run)
        ranks = int(found.get("parallel.devices", 1))
        assert int(found["train.local_batch_size"]) * ranks * int(found["train.max_steps"]) == 8 * 20
        assert int(found["parallel.threads"]) * ranks == 2


def test_an_option_changes_the_baseline_in_its_own_settings_alone() -> None:
    study = gains()
    plain = run_settings(study, PlannedRun(AGAIN, 3))
    for option in study.options:
        own = run_settings(study, PlannedRun(option, 3))
        changed = {key for key in plain.keys() | own.keys() if plain.get(key) != own.get(key)}
        layout = {"parallel.devices", "parallel.threads", "train.local_batch_size"} if option.ranks else set()
        assert changed == {*option.settings} | layout


def test_what_failed_is_not_tried_in_further_repeats_and_what_was_interrupted_is() -> None:
    study = gains(only=["bf16", "fused"], repeats=2)
    statuses = {
        "bf16-r1": RunStatus("failed", "no memory"), "fused-r1": RunStatus("interrupted"),
        "baseline-r1": RunStatus("reached"),
    }  # fmt: skip
    assert {run.name for run in due(alone(study), statuses)} == {"fused-r1", "fused-r2", "baseline-r2"}
    diverged = {**statuses, "bf16-r1": RunStatus("diverged")}
    assert "bf16-r2" in {run.name for run in due(alone(study), diverged)}


def test_together_has_a_baseline_of_its_own_beside_it() -> None:
    study = gains()
    option = combined(study.options[:2])
    counts = Counter(run.option.name for run in together(study, option))
    assert counts == {"baseline-again": 6, "together-bf16+fp16": 6}
