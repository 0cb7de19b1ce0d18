"""Device time as a sum over kernels: the arithmetic, and that published steps are predicted worse by it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from _common import RESULTS
from _kernel_sum import FORMS, kernel_sums, kernels, summed

from hpcbench.mlperf.published import published_runs
from hpcbench.prediction.entries import model_entries
from hpcbench.prediction.platforms import shipped_machines
from hpcbench.prediction.step_time import StepCase


def test_a_sum_over_kernels_is_that_of_each_one_at_its_roof() -> None:
    one = np.ones(1)
    case = StepCase(np.array([0]), 0 * one, 2 * one, one, 2e12 * one, 3e14 * one, one, one, one, one, one)
    seconds = sum(
        count
        * max(1.5 * (fixed + 2 * (flop - fixed)) / 3e14, 1.5 * (fixed_bytes + 2 * (moved - fixed_bytes)) / 2e12, 1e-5)
        for count, flop, fixed, moved, fixed_bytes in kernels("cosmoflow")
    )
    parameters = {"efficiency": np.array([1.5, 9.0]), "launch": np.asarray(1e-5), "newer": np.zeros(2)}
    assert summed(parameters, case) == pytest.approx([seconds])
    apart = {"compute": np.array([1.5, 9.0]), "memory": np.array([1.5, 9.0]), "launch": np.asarray(1e-5)}
    more = {**apart, "newer": np.log([2.0, 1.0]), "overhead": np.array([0.01, 0.0]), "exponent": np.asarray(1.0)}
    later = StepCase(**{**vars(case), "newer": one})
    assert summed(more, later) == pytest.approx([2 * (seconds + 0.01 * 2.039 / 2)])


def test_the_counts_are_those_of_the_published_size() -> None:
    for name, gflop in (("cosmoflow", 192.1), ("deepcam", 1964.0)):
        count, flop, *_ = kernels(name).T
        assert (count * flop).sum() / 1e9 == pytest.approx(gflop, rel=1e-3)


@pytest.mark.slow  # counts both applications and makes 25 fits: 10 s
def test_the_record_is_what_the_forms_give() -> None:
    record = json.loads(Path(RESULTS, "prediction.json").read_text(encoding="utf-8"))
    kept = record["results"]["published"]["kernel_sums"]
    found = kernel_sums(model_entries(published_runs(), shipped_machines()))
    assert [each["form"] for each in found] == [each["form"] for each in kept] == list(FORMS)
    for each, before in zip(found, kept, strict=True):
        assert each["median"] == pytest.approx(before["median"], abs=0.01)
        assert each["tail"] == pytest.approx(before["tail"], abs=0.03)
