"""The constants and the worked example of docs/prediction.md are those of the model as it is fitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcbench.prediction.entries import ModelEntry
from hpcbench.prediction.fitted import Fitted, fit
from hpcbench.prediction.forecast import Forecast, forecast
from hpcbench.prediction.held_out import by_site, training_of
from hpcbench.prediction.step_time import A100_80_BYTES_PER_S, case_of, device_s, exposed_s
from hpcbench.prediction.workload import published_work, work_of
from hpcbench.probability import expected_largest

PAGE = " ".join((Path(__file__).parents[3] / "docs" / "prediction.md").read_text(encoding="utf-8").split())
DEEPCAM = 1
"""Number of the application among those of published rounds."""


@pytest.fixture(scope="module")
def ten_at_once(entries: tuple[ModelEntry, ...]) -> ModelEntry:
    """DeepCAM on 128 nodes of Perlmutter in v1.0, ten trainings side by side."""
    (found,) = [entry for entry in entries if entry.throughput and (entry.site, entry.application, entry.nodes) ==
                ("perlmutter-gpu", "deepcam", 128)]  # fmt: skip
    return found


@pytest.fixture
def example(fitted: Fitted, entries: tuple[ModelEntry, ...], ten_at_once: ModelEntry) -> Forecast:
    return forecast(fitted, training_of(ten_at_once, fitted, entries))


def parameters(fitted: Fitted) -> dict[str, Any]:
    """Of steps and of staging; what both have, ``newer``, is the step's."""
    return {**fitted.data_staging.parameters(), **fitted.step.parameters()}


def test_constants_are_those_of_the_fit(fitted: Fitted) -> None:
    assert list(published_work()) == ["cosmoflow", "deepcam"]
    found, staging = parameters(fitted), fitted.data_staging.parameters()
    overhead, efficiency, newer = 1e3 * found["overhead"], found["efficiency"], np.exp(found["newer"])
    assert f"CosmoFlow and DeepCAM the overhead is {overhead[0]:.1f} and {overhead[1]:.1f} ms" in PAGE
    assert f"(time over the roofline's) is {efficiency[0]:.2f} and {efficiency[1]:.2f}" in PAGE
    assert f"code of v2.0 takes {newer[0]:.2f} and {newer[1]:.2f} of the time" in PAGE
    assert f"overhead (W0 / W)^{found['exponent']:.2f} + efficiency" in PAGE
    assert f"sigma fitted: {found['jitter']:.2f} |" in PAGE
    assert f"exposed share fitted: {found['exposed']:.2f} |" in PAGE
    assert f"level (V / (nodes x network) / 1 s)^{found['power']:.2f}, times exp(newer) for code of v2.0" in PAGE
    shorter = np.exp(staging["newer"])
    assert f"Staging took {shorter[0]:.2f} and {shorter[1]:.2f} of the time in v2.0" in PAGE


def test_the_worked_example_is_what_the_model_says(fitted: Fitted, example: Forecast, ten_at_once: ModelEntry) -> None:
    found, training = parameters(fitted), example.training
    platform, work = training.platform, work_of("deepcam")
    case = case_of(work, platform, training.nodes, training.devices, training.local_batch, newer=False)
    sample_ms, overhead_ms = 1e3 * float(case.roofline_s), 1e3 * float(found["overhead"][DEEPCAM])
    efficiency = float(found["efficiency"][DEEPCAM])
    assert f"A sample moves {work.memory_bytes / 1e9:.1f} GB of memory, which takes {sample_ms:.1f} ms" in PAGE
    assert f"its computation takes {1e3 * work.flop / platform.peak_flop_per_s:.1f} ms at peak" in PAGE
    assert f"2 x {sample_ms:.1f} x {efficiency:.2f} = {2 * sample_ms * efficiency:.0f} ms" in PAGE
    slower = (A100_80_BYTES_PER_S / platform.memory_bytes_per_s) ** float(found["exponent"])
    assert f"{overhead_ms:.1f} x (2.039 / 1.555)^{found['exponent']:.2f} = {overhead_ms * slower:.1f} ms" in PAGE
    assert f"the device time is {1e3 * float(device_s(found, case)):.0f} ms" in PAGE
    largest = float(expected_largest(512))
    assert f"exp({found['jitter']:.3f} x {largest:.2f}) = {np.exp(found['jitter'] * largest):.2f} of that" in PAGE
    assert f"Half of that is exposed, {1e3 * float(exposed_s(found, case)):.1f} ms" in PAGE
    assert f"A step takes {1e3 * example.step.central:.0f} ms" in PAGE
    assert f"An epoch has {ten_at_once.steps} steps, and there are {example.training.epochs.mean:.1f} epochs" in PAGE
    full_s, level, power = training.full_speed_s, float(found["level"][DEEPCAM]), float(found["power"])
    staged = f"{level:.0f} x {full_s:.2f}^{power:.2f} = {level * full_s**power:.0f} s"
    assert f"{work.landed_on_node(128) / 1e9:.1f} GB, takes {full_s:.2f} s at full network rate, and {staged}" in PAGE


def test_the_example_without_its_site_is_off_by_what_the_page_says(
    entries: tuple[ModelEntry, ...], ten_at_once: ModelEntry
) -> None:
    others = [entry for entry in entries if by_site(entry) != ten_at_once.site]
    fitted = fit(others)
    predicted = forecast(fitted, training_of(ten_at_once, fitted, others))
    less = 1 - predicted.time.central / ten_at_once.time_s
    assert f"the last one ended after {ten_at_once.time_s:.0f} s" in PAGE
    assert f"the model predicts {predicted.time.central:.0f} s, which is {100 * less:.0f} % less" in PAGE
    longer = predicted.step.central / ten_at_once.step_s - 1
    assert f"a step that is {100 * longer:.0f} % longer than Perlmutter's" in PAGE


def test_spreads_of_a_staging_after_a_run_are_those_of_the_page(fitted: Fitted) -> None:
    grown, again = fitted.staging_growth.value, fitted.staging_repeat.value
    assert f"(a spread of {grown:.2f} in the logarithm, and {again:.2f} at the same size)" in PAGE


def test_the_reference_code_is_slower_by_what_the_page_says(entries: tuple[ModelEntry, ...]) -> None:
    (theta,) = [entry for entry in entries if (entry.site, entry.application) == ("theta-gpu", "deepcam")]
    tuned = [entry for entry in entries if entry.tuned and (entry.application, entry.local_batch) ==
             ("deepcam", theta.local_batch)]  # fmt: skip
    assert {entry.round for entry in tuned} == {"v1.0", "v2.0"}
    ratios = [theta.step_s / entry.step_s for entry in tuned]
    assert f"its steps took {min(ratios):.1f} to {max(ratios):.1f} times as long as those of tuned code" in PAGE


def test_steps_of_one_card_differ_by_what_the_page_says(entries: tuple[ModelEntry, ...]) -> None:
    step_ms = {entry.site: 1e3 * entry.step_s for entry in entries
               if (entry.round, entry.application, entry.nodes, entry.local_batch) == ("v1.0", "deepcam", 128, 2)
               and entry.tuned}  # fmt: skip
    perlmutter, juwels, horeka = (step_ms[site] for site in ("perlmutter-gpu", "juwels-booster", "horeka"))
    assert f"a step took {perlmutter:.0f} ms on Perlmutter, {juwels:.0f} ms on JUWELS and {horeka:.0f} ms" in PAGE
