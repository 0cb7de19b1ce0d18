"""The learning rate against the published values and an independent implementation of the references."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.config.schema import ScheduleConfig
from hpcbench.optim.schedule import learning_rate


def cosmoflow(*, quirks: bool = False) -> ScheduleConfig:
    """The reference's recipe: warm-up over 4 epochs, a quarter from epoch 32, an eighth from epoch 64."""
    return ScheduleConfig(
        unit="epoch", shape="multistep", warmup=4, warmup_start_lr=0.001, milestones=[32, 64], factors=[0.25, 0.125],
        reference_quirks=quirks,
    )  # fmt: skip


def per_epoch(schedule: ScheduleConfig, peak: float, epochs: int) -> list[float]:
    return [learning_rate(schedule, peak, 10 * epoch, 10) for epoch in range(epochs)]


def test_cosmoflow_at_batch_512() -> None:
    rates = per_epoch(cosmoflow(), 0.008, 70)
    assert rates[:5] == pytest.approx([0.001, 0.00275, 0.0045, 0.00625, 0.008], rel=1e-12)
    assert set(rates[4:32]) == {0.008}
    assert set(rates[32:64]) == {0.002}
    assert set(rates[64:]) == {0.001}


def test_cosmoflow_reference_drops_one_epoch_late() -> None:
    rates = per_epoch(cosmoflow(quirks=True), 0.008, 70)
    assert rates[:5] == pytest.approx([0.001, 0.00275, 0.0045, 0.00625, 0.008], rel=1e-12)
    assert set(rates[4:33]) == {0.008}
    assert set(rates[33:65]) == {0.002}
    assert set(rates[65:]) == {0.001}


def test_the_rate_is_constant_within_an_epoch() -> None:
    schedule = cosmoflow()
    assert {learning_rate(schedule, 0.008, step, 10) for step in range(10, 20)} == {0.00275}


def deepcam(*, quirks: bool = False) -> ScheduleConfig:
    """Batch 2048: warm-up over 400 steps from zero to 0.0055, a tenth 800 steps later."""
    return ScheduleConfig(
        unit="step", shape="multistep", warmup=400, milestones=[800], factors=[0.1], reference_quirks=quirks
    )


def test_deepcam_reaches_its_peak_at_the_end_of_the_warm_up() -> None:
    rates = [learning_rate(deepcam(), 0.0055, step, 59) for step in range(1300)]
    assert rates[0] == pytest.approx(0.0055 / 400, rel=1e-12)
    assert rates[398] < 0.0055
    assert set(rates[399:1200]) == {0.0055}
    assert rates[1200:] == pytest.approx([0.00055] * 100, rel=1e-12)
    assert max(rates) == 0.0055


def test_deepcam_reference_freezes_short_of_its_peak() -> None:
    rates = [learning_rate(deepcam(quirks=True), 0.0055, step, 59) for step in range(1300)]
    assert rates[0] == pytest.approx(0.0055 / 400, rel=1e-12)
    assert rates[398:1200] == pytest.approx([0.00548625] * 802, rel=1e-12)
    assert rates[1200:] == pytest.approx([0.000548625] * 100, rel=1e-12)


def reference_deepcam(
    base: float, factor: float, warmup: int, milestones: list[int], t_max: int, steps: int
) -> list[float]:
    """What the reference's two schedulers do, as a loop: one call ahead of the optimizer, from the rate before."""
    rates, rate = [], base
    drops = Counter(milestone + warmup + 1 for milestone in milestones)
    for call in range(1, steps + 1):
        if call < warmup:
            share = call / warmup
            rate = base * share if factor == 1 else base * ((factor - 1) * share + 1)
        elif t_max:
            ahead = call - warmup
            if ahead and (ahead - 1 - t_max) % (2 * t_max) == 0:
                rate += base * (1 - math.cos(math.pi / t_max)) / 2
            elif ahead:
                rate *= (1 + math.cos(math.pi * ahead / t_max)) / (1 + math.cos(math.pi * (ahead - 1) / t_max))
        else:
            rate *= 0.1 ** drops[call]
        rates.append(rate)
    return rates


@given(st.integers(1, 30), st.floats(1.0, 8.0), st.booleans(), st.integers(2, 40))
def test_quirks_follow_the_deepcam_reference(warmup: int, factor: float, cosine: bool, length: int) -> None:
    base, steps = 0.003, 100
    schedule = ScheduleConfig(
        unit="step", shape="cosine" if cosine else "multistep", warmup=warmup,
        warmup_start_lr=0.0 if factor == 1 else base, t_max=length if cosine else 0,
        milestones=[] if cosine else [length, 2 * length], factors=[] if cosine else [0.1, 0.01], reference_quirks=True,
    )  # fmt: skip
    found = [learning_rate(schedule, base * factor, step, 7) for step in range(steps)]
    milestones = [] if cosine else [length, 2 * length]
    # The reference's recurrence loses digits once a cosine has come down to zero, so one descent is compared.
    compared = min(steps, warmup + length - 2) if cosine else steps
    expected = reference_deepcam(base, factor, warmup, milestones, length if cosine else 0, steps)
    assert found[:compared] == pytest.approx(expected[:compared], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("start", "top"), [(0.1, 0.1), (0.0, 1.0)])
def test_the_references_cosine_rises_again_to_the_base_rate(start: float, top: float) -> None:
    schedule = ScheduleConfig(
        unit="step", shape="cosine", warmup=2, warmup_start_lr=start, t_max=10, reference_quirks=True
    )
    assert max(learning_rate(schedule, 1.0, step, 1) for step in range(12, 100)) == pytest.approx(top)


def test_cosine_is_half_way_in_the_middle() -> None:
    schedule = ScheduleConfig(unit="step", shape="cosine", warmup=10, t_max=100, eta_min=0.2)
    rates = [learning_rate(schedule, 1.0, step, 1) for step in range(211)]
    assert rates[9] == rates[10] == 1.0
    assert rates[60] == pytest.approx(0.6)
    assert rates[110] == pytest.approx(0.2)
    assert rates[210] == pytest.approx(1.0)


@given(st.integers(0, 20), st.floats(1e-5, 1.0), st.sampled_from(["epoch", "step"]))
def test_the_peak_is_reached_and_is_the_peak(warmup: int, peak: float, unit: str) -> None:
    schedule = ScheduleConfig(unit=unit, warmup=warmup, warmup_start_lr=peak / 7)  # type: ignore[arg-type]
    rates = [learning_rate(schedule, peak, step, 3) for step in range(3 * warmup + 6)]
    assert max(rates) == peak == rates[-1]
    assert rates == sorted(rates)


def test_polynomial_follows_torch_and_stays_at_its_end() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=40, power=2.5)
    schedule = ScheduleConfig(unit="step", shape="polynomial", t_max=40, power=2.5)
    for step in range(60):
        assert learning_rate(schedule, 0.4, step, 7) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
        optimizer.step()
        scheduler.step()


def test_polynomial_of_power_one_is_a_line_from_the_peak_to_its_end() -> None:
    schedule = ScheduleConfig(unit="epoch", shape="polynomial", warmup=2, t_max=4, eta_min=0.2)
    assert per_epoch(schedule, 1.0, 9) == pytest.approx([0, 0.5, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])


@given(st.integers(1, 40), st.integers(0, 400))
def test_the_inverse_square_root_is_that_of_the_transformer(warmup: int, step: int) -> None:
    """Vaswani et al. 2017, equation 3, of which the peak is at step ``warmup`` (1-based)."""
    schedule = ScheduleConfig(unit="step", shape="inverse_sqrt", warmup=warmup, t_max=warmup)
    published = min((step + 1) ** -0.5, (step + 1) * warmup**-1.5) / warmup**-0.5
    ours = learning_rate(schedule, 1.0, step if step < warmup else step + 1, 7)
    assert ours == pytest.approx(published, rel=1e-12)


def test_the_inverse_square_root_has_half_its_peak_after_three_time_scales() -> None:
    schedule = ScheduleConfig(unit="epoch", shape="inverse_sqrt", warmup=2, t_max=4, eta_min=0.2)
    rates = per_epoch(schedule, 1.0, 15)
    assert (rates[2], rates[14]) == (1.0, pytest.approx(0.2 + 0.8 / 2))
    assert rates[2:] == sorted(rates[2:], reverse=True)


def test_warm_up_in_steps_before_drops_in_epochs() -> None:
    """Five steps of four-step epochs; the drop is at epoch 3 of the run, and what follows is constant in an epoch."""
    schedule = ScheduleConfig(
        unit="epoch", shape="multistep", warmup=5, warmup_unit="step", milestones=[3], factors=[0.1]
    )
    rates = [learning_rate(schedule, 1.0, step, 4) for step in range(16)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, *[1.0] * 7, *[0.1] * 4])


def test_a_descent_in_epochs_begins_in_the_epoch_in_which_a_warm_up_in_steps_ends() -> None:
    schedule = ScheduleConfig(unit="epoch", shape="polynomial", warmup=5, warmup_unit="step", t_max=2)
    rates = [learning_rate(schedule, 1.0, step, 4) for step in range(16)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, *[1.0] * 3, *[0.5] * 4, *[0.0] * 4])


def test_warm_up_in_epochs_before_drops_in_steps() -> None:
    """Two epochs of four steps, each at one rate; the drop is three steps after them."""
    schedule = ScheduleConfig(
        unit="step",
        shape="multistep",
        warmup=2,
        warmup_unit="epoch",
        warmup_start_lr=0.2,
        milestones=[3],
        factors=[0.1],
    )
    rates = [learning_rate(schedule, 1.0, step, 4) for step in range(14)]
    assert rates == pytest.approx([*[0.2] * 4, *[0.6] * 4, *[1.0] * 3, *[0.1] * 3])


def test_a_warm_up_in_epochs_that_rises_every_step_covers_as_many_samples_at_every_batch() -> None:
    """Two epochs of four steps; of two steps, at twice the batch, the rates are those of every second step."""
    schedule = ScheduleConfig(unit="epoch", shape="polynomial", warmup=2, warmup_unit="epoch_by_step", t_max=2)
    small = [learning_rate(schedule, 1.0, step, 4) for step in range(16)]
    assert small == pytest.approx([*(done / 8 for done in range(1, 9)), *[1.0] * 4, *[0.5] * 4])
    large = [learning_rate(schedule, 1.0, step, 2) for step in range(8)]
    assert large == pytest.approx(small[1::2])


def test_a_warm_up_that_rises_every_step_ends_with_its_epochs_however_long_they_are() -> None:
    schedule = ScheduleConfig(unit="epoch", warmup=1, warmup_unit="epoch_by_step", warmup_start_lr=0.2)
    assert learning_rate(schedule, 1.0, 3, 5, epoch=0) == pytest.approx(0.2 + 0.8 * 4 / 5)
    assert learning_rate(schedule, 1.0, 6, 5, epoch=0) == 1.0, "an epoch with two more steps"
    assert learning_rate(schedule, 1.0, 4, 5, epoch=1) == 1.0, "the epoch before had a step less"


SHAPES = ["multistep", "cosine", "polynomial", "inverse_sqrt"]


@given(st.sampled_from(["epoch", "step"]), st.integers(0, 5), st.sampled_from(SHAPES))
def test_naming_the_unit_of_the_rest_for_the_warm_up_changes_nothing(unit: Any, warmup: int, shape: Any) -> None:
    told = ScheduleConfig(
        unit=unit, shape=shape, warmup=warmup, warmup_unit=unit, milestones=[4, 9], factors=[0.5, 0.1], t_max=9
    )
    untold = replace(told, warmup_unit=None)
    for step in range(60):
        assert learning_rate(told, 0.7, step, 4) == learning_rate(untold, 0.7, step, 4)


def test_the_epoch_is_taken_as_told_where_epochs_differ_in_length() -> None:
    """With reshuffled shards the number of steps changes between epochs, so that a step does not tell its epoch."""
    assert learning_rate(cosmoflow(), 0.008, 25, 10, epoch=1) == 0.00275
    assert learning_rate(cosmoflow(), 0.008, 3, 10, epoch=40) == 0.002
    assert learning_rate(deepcam(), 0.0055, 1200, 59, epoch=3) == pytest.approx(0.00055)
    descent = ScheduleConfig(unit="step", shape="polynomial", warmup=2, warmup_unit="epoch", t_max=9)
    assert learning_rate(descent, 1.0, 8, 5, epoch=2) == 1.0
