"""Scaling rules against the published rates of CosmoFlow, and what they leave alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.config.schema import OptimConfig, RunConfig, ScheduleConfig
from hpcbench.optim.lr_scaling import peak_learning_rate, rate_note, scale_to_batch

LINEAR: dict[str, Any] = {"lr": 0.001, "scaling": "linear", "base_batch_size": 64}
ROOT: dict[str, Any] = {"lr": 0.0025, "scaling": "sqrt", "base_batch_size": 32}


@pytest.mark.parametrize(
    ("optim", "batch", "peak"),
    [
        (LINEAR, 64, 0.001), (LINEAR, 512, 0.008), (LINEAR, 1024, 0.016), (LINEAR, 32, 0.0005),
        (ROOT, 32, 0.0025), (ROOT, 512, 0.01), (ROOT, 2048, 0.02),
        ({"lr": 0.001}, 4096, 0.001), ({"lr": 0.001, "base_batch_size": 64}, 4096, 0.001),
    ],
)  # fmt: skip
def test_published_rules_of_the_cosmoflow_reference(optim: dict[str, Any], batch: int, peak: float) -> None:
    assert peak_learning_rate(OptimConfig(**optim), batch) == pytest.approx(peak, rel=1e-15)


@given(st.sampled_from(["linear", "sqrt"]), st.integers(1, 4096), st.integers(1, 100_000))
def test_scaling_to_the_batch_twice_is_scaling_once_and_the_rule_still_holds(rule: Any, base: int, batch: int) -> None:
    config = RunConfig(optim=OptimConfig(lr=0.3, scaling=rule, base_batch_size=base))
    scale_to_batch(config, batch)
    peak = config.optim.lr
    assert (config.optim.scaling, config.optim.base_batch_size) == (rule, batch)
    scale_to_batch(config, batch)
    assert config.optim.lr == peak
    scale_to_batch(config, base)
    assert config.optim.lr == pytest.approx(0.3, rel=1e-12)


@pytest.mark.parametrize(
    ("batch", "start", "end"), [(512, 0.001, 0.0005), (32, 0.0005, 0.0005), (16, 0.00025, 0.00025)]
)
def test_absolute_rates_of_the_schedule_stay_but_not_above_the_peak(batch: int, start: float, end: float) -> None:
    config = RunConfig(
        optim=OptimConfig(**LINEAR), schedule=ScheduleConfig(warmup=4, warmup_start_lr=0.001, eta_min=0.0005)
    )
    scale_to_batch(config, batch)
    assert (config.schedule.warmup_start_lr, config.schedule.eta_min) == (start, end)


def test_without_a_rule_nothing_changes() -> None:
    config = RunConfig(optim=OptimConfig(lr=0.024, base_batch_size=512), schedule=ScheduleConfig(warmup_start_lr=0.006))
    scale_to_batch(config, 8)
    assert config.optim == OptimConfig(lr=0.024, base_batch_size=512)
    assert config.schedule.warmup_start_lr == 0.006


def test_the_first_line_of_a_run_says_the_peak_and_whom_it_is_for() -> None:
    assert (
        rate_note(OptimConfig(lr=0.008, scaling="linear", base_batch_size=512), 512)
        == "peak rate 0.008 (linear scaling)"
    )
    assert rate_note(OptimConfig(lr=0.024, base_batch_size=512), 512) == "peak rate 0.024"
    assert rate_note(OptimConfig(lr=0.024), 512) == "peak rate 0.024"
    note = rate_note(OptimConfig(lr=0.024, base_batch_size=512), 8)
    assert note == "peak rate 0.024 (for batch 512; see optim.scaling)"
