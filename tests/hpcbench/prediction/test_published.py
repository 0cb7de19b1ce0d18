"""The published entries as the model sees them: facts of the rounds."""

from __future__ import annotations

import statistics

import pytest

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.epochs import entry_epochs, fit_spreads, other_epochs, own_epochs, reference_training
from hpcbench.prediction.fitted import Fitted
from hpcbench.prediction.recipes import recipe_of, reference_epochs
from staging.errors import InputError


def one(entries: tuple[ModelEntry, ...], round_: str, site: str, application: str, accelerators: int) -> ModelEntry:
    """The only entry that is so."""
    found = [each for each in entries if (each.round, each.site, each.application, each.accelerators) ==
             (round_, site, application, accelerators) and not each.throughput]  # fmt: skip
    assert len(found) == 1
    return found[0]


def test_tuned_entries_are_those_of_five_machines(entries: tuple[ModelEntry, ...]) -> None:
    tuned = [entry for entry in entries if entry.tuned]
    assert len(tuned) == 27
    assert {entry.site for entry in tuned} == {"selene", "perlmutter-gpu", "juwels-booster", "horeka", "dell-xe8545"}


def test_parts_of_an_entry_add_up_to_its_score(entries: tuple[ModelEntry, ...]) -> None:
    errors = []
    for entry in entries:
        if entry.tuned and not entry.throughput:
            staging = entry.data_staging_s if entry.stages_first else entry.first_epoch_s - entry.epoch_s
            kept = statistics.fmean(sorted(entry.epochs)[1:-1])
            errors.append(abs((staging + kept * entry.epoch_and_evaluation_s + entry.extras_s) / entry.time_s - 1))
    assert statistics.median(errors) < 0.02
    assert max(errors) < 0.08


def test_the_reference_code_took_several_times_as_long_at_the_same_local_batch(
    entries: tuple[ModelEntry, ...],
) -> None:
    theta = one(entries, "v1.0", "theta-gpu", "deepcam", 128)
    assert not theta.tuned
    others = [each.step_s for each in entries
              if each.tuned and (each.application, each.local_batch) == ("deepcam", theta.local_batch)]  # fmt: skip
    assert min(theta.step_s / other for other in others) > 3
    assert max(theta.step_s / other for other in others) < 6


def test_cosmoflow_goes_with_memory_bandwidth_between_the_two_a100_in_v1(entries: tuple[ModelEntry, ...]) -> None:
    # 19.6 ms (1.555 TB/s) and 15.2 ms (2.039 TB/s) in the median: an exponent of 0.94
    steps: dict[float, list[float]] = {}
    for entry in entries:
        if entry.tuned and entry.application == "cosmoflow" and entry.round == "v1.0":
            assert entry.platform is not None
            steps.setdefault(entry.platform.memory_bytes_per_s / 1e12, []).append(1e3 * entry.step_s)
    assert statistics.median(steps[1.555]) == pytest.approx(19.6, rel=0.03)
    assert statistics.median(steps[2.039]) == pytest.approx(15.2, rel=0.03)


def test_recipes_are_told_from_the_reference_s(entries: tuple[ModelEntry, ...]) -> None:
    perlmutter = one(entries, "v1.0", "perlmutter-gpu", "deepcam", 2048)
    assert reference_epochs("deepcam", "v1.0", 2048, recipe_of(perlmutter.recipe)) is not None
    # base rate 0.008 where the reference has 0.006
    juwels = one(entries, "v1.0", "juwels-booster", "cosmoflow", 512)
    assert reference_epochs("cosmoflow", "v1.0", 512, recipe_of(juwels.recipe)) is None


def test_one_trajectory_run_ten_times_is_found_and_left_out(entries: tuple[ModelEntry, ...]) -> None:
    copies = [entry for entry in entries if entry.one_trajectory]
    assert {(entry.site, entry.application, entry.global_batch) for entry in copies} == {
        ("juwels-booster", "cosmoflow", 1024), ("juwels-booster", "cosmoflow", 512),
    }  # fmt: skip
    selene = one(entries, "v1.0", "selene", "cosmoflow", 1024)
    others = [entry for entry in entries if entry.site != "selene"]
    known = entry_epochs(selene, others, fit_spreads(others))
    perlmutter = one(entries, "v1.0", "perlmutter-gpu", "cosmoflow", 1024)
    assert known.basis == "same recipe"
    assert known.mean == pytest.approx(perlmutter.mean_epochs)


def test_epochs_of_reference_points_are_the_package_s(fitted: Fitted) -> None:
    found = reference_training("cosmoflow", 512, [], fitted.epochs)
    assert found.mean == pytest.approx(22.8)
    between = reference_training("cosmoflow", 700, [], fitted.epochs)
    assert 22.8 < between.mean < 40
    assert between.uncertainty > 2 * found.uncertainty
    assert "whose recipes differ" in between.words


def test_a_recipe_that_nobody_described_is_an_interval(fitted: Fitted) -> None:
    known = reference_training("deepcam", 1024, fitted.entries, fitted.epochs)
    other = other_epochs("deepcam", "3.0.0", 1024, fitted.epochs)
    assert other.uncertainty > 3 * known.uncertainty
    assert "an interval alone" in other.words


def test_a_batch_beyond_the_points_is_refused(fitted: Fitted) -> None:
    with pytest.raises(InputError, match=r"no reference point of deepcam is at batch 4,096 or above: .*128 to 2,048"):
        reference_training("deepcam", 4096, [], fitted.epochs)
    with pytest.raises(InputError, match=r"at batch 16 or below"):
        other_epochs("cosmoflow", "3.0.0", 16, fitted.epochs)


def test_own_runs_are_their_mean(fitted: Fitted) -> None:
    found = own_epochs(64, {64: [8.0, 10.0, 12.0]}, fitted.epochs, "study")
    assert found.mean == 10
    with pytest.raises(
        InputError, match=r"--recipe study has no run that reached the target at batch 32 \(it has 64\)"
    ):
        own_epochs(32, {64: [8.0]}, fitted.epochs, "study")
