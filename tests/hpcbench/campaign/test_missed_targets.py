"""Runs that missed the target, or failed, count in the figure of a size; and the epochs and rate beside that figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.campaign.categories import scenario_of
from hpcbench.campaign.content import read_content, text_of
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.report import report
from hpcbench.campaign.response import ResponseRow
from hpcbench.campaign.rules import Campaign, Commitment
from hpcbench.campaign.statistic import over_runs
from hpcbench.exits import DONE, TARGET_NOT_REACHED
from tests.hpcbench.campaign.made_up import UNCHANGED, make_size, shipped

pytestmark = pytest.mark.usefixtures("undrawn")
MISSED = {"status": "target_not_reached", "best": 0.7}
CHANGED = {"installation": {**UNCHANGED, "unchanged": False, "differing": 1, "names": ["changed: hpcbench/x.py"]}}


def committed(minutes: float, repeats: int = 3) -> Campaign:
    promise = Commitment("s2", "baseline", 16, minutes, 0.05, repeats)
    return replace(shipped("esif-hpc-4"), acceptance=(promise,))


def run(minutes: float, epochs: int = 49, **changes: Any) -> dict[str, Any]:
    return {"local": 16, "epochs": epochs, "epoch_s": 60 * minutes / epochs, **changes}


def size_row(folder: CampaignFolder, scenario: str) -> ResponseRow:
    rows = {each.name: own for each, _, own in read_content(folder, folder.open()).scenarios}[scenario]
    return next(row for row in rows if row.kind == "result")


def said(folder: CampaignFolder) -> str:
    return " ".join(text_of(read_content(folder, folder.open())).split())


def test_a_commitment_is_missed_where_most_runs_missed_the_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [run(110.0)] * 3 + [run(112.0, **MISSED)] * 5
    folder = make_size(tmp_path / "c", committed(118.0), "s2", "baseline", 16, runs)
    assert report(folder) == TARGET_NOT_REACHED
    printed = " ".join(capsys.readouterr().out.split())
    assert "missed: s2, baseline, 16 nodes: 5 of 8 runs did not reach the target, committed 118.0 min + 5 %" in printed
    assert "baseline, 16 nodes: no figure, 5 of 8 runs did not reach the target" in printed
    cells = size_row(folder, "s2").cells
    assert (cells["minutes"], cells["epochs"], cells["samples_per_s_per_accelerator"]) == (None, None, None)
    assert cells["valid"] == "3/8"


def test_a_run_that_missed_the_target_is_the_slowest_of_a_median(tmp_path: Path) -> None:
    runs = [run(100.0), run(110.0), run(120.0), run(90.0, **MISSED), run(90.0, **MISSED)]
    folder = make_size(tmp_path / "c", committed(110.0), "s2", "baseline", 16, runs)
    assert report(folder) == TARGET_NOT_REACHED, "the median of those that reached it would do"
    assert size_row(folder, "s2").cells["minutes"] == pytest.approx(120.0, abs=1e-3)
    assert "120.0 min (median of 5, 2 of 5 runs did not reach the target)" in said(folder)


def test_runs_that_are_excluded_for_another_reason_stay_out_of_the_median(tmp_path: Path) -> None:
    runs = [run(100.0), run(110.0), run(120.0), run(90.0, **CHANGED), run(90.0, **CHANGED, **MISSED)]
    folder = make_size(tmp_path / "c", committed(118.0), "s2", "baseline", 16, runs)
    assert report(folder) == DONE
    assert "110.0 min (median of 3)" in said(folder)


def test_too_few_runs_leave_a_commitment_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_size(tmp_path / "c", committed(118.0), "s2", "baseline", 16, [run(90.0, **MISSED)])
    assert report(folder) == TARGET_NOT_REACHED
    assert "open: s2, baseline, 16 nodes: 0 of 3 valid runs" in capsys.readouterr().out


def test_lost_values_are_infinite_in_every_statistic() -> None:
    scenario = scenario_of(shipped("esif-hpc-4"), "s2")
    mean = replace(scenario, metric=replace(scenario.metric, statistic="mean"))
    assert over_runs(scenario, [1.0, 2.0], 2) == float("inf")
    assert over_runs(scenario, [1.0, 2.0], 1) == 2
    assert over_runs(mean, [1.0, 2.0], 1) == float("inf")
    assert over_runs(mean, [1.0, 2.0], 0) == 1.5


def test_the_rate_of_equal_runs_is_theirs_though_their_figure_is_normalised(tmp_path: Path) -> None:
    runs = [{"local": 2, "epochs": epochs, "epoch_s": 60.0} for epochs in (6, 6, 7, 7, 7)]
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam", "closed", 16, runs)
    cells = size_row(folder, "deepcam").cells
    assert cells["epochs"] == pytest.approx(20 / 3)
    assert cells["minutes"] == pytest.approx(6.9444, abs=1e-3), "normalised"
    assert cells["samples_per_s_per_accelerator"] == pytest.approx(121_266 / 60 / 64, rel=1e-4)


def test_the_epochs_beside_an_olympic_mean_are_an_olympic_mean(tmp_path: Path) -> None:
    runs = [{"local": 2, "epochs": epochs, "epoch_s": 60.0} for epochs in (30, 31, 32, 33, 60)]
    folder = make_size(tmp_path / "c", shipped("mlperf-hpc-3.0"), "deepcam", "open", 16, runs)
    assert size_row(folder, "deepcam").cells["epochs"] == pytest.approx(32.0)
    runs[4] |= MISSED
    folder = make_size(tmp_path / "m", shipped("mlperf-hpc-3.0"), "deepcam", "open", 16, runs)
    cells = size_row(folder, "deepcam").cells
    assert cells["epochs"] == pytest.approx(32.0)
    assert cells["samples_per_s_per_accelerator"] == pytest.approx(121_266 / 60 / 64, rel=1e-4)
