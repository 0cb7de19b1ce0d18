"""Runs whose configuration or log is of another division than their category do not count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.campaign.categories import category_of, scenario_of
from hpcbench.campaign.content import read_content, text_of
from hpcbench.campaign.folder import CampaignFolder
from hpcbench.campaign.read_rules import CAMPAIGNS, read_campaign
from staging.errors import InputError
from tests.hpcbench.campaign.made_up import make_size, shipped

MLPERF = shipped("mlperf-hpc-3.0")


def of_open(root: Path, **changes: Any) -> CampaignFolder:
    """A run of the open division."""
    return make_size(root, MLPERF, "deepcam", "open", 16, [{"local": 2, "epochs": 7, "epoch_s": 60.0, **changes}])


def log_of(folder: CampaignFolder) -> Path:
    """The official log of its run."""
    place = folder.study(category_of(MLPERF, "open"), scenario_of(MLPERF, "deepcam"))
    return place.run("n0016-r1") / "mllog.txt"


def said_of(folder: CampaignFolder) -> str:
    """The report in one line."""
    return " ".join(text_of(read_content(folder, folder.open())).split())


def test_a_run_of_its_division_counts(tmp_path: Path) -> None:
    folder = of_open(tmp_path / "c")
    assert '"submission_division", "value": "open"' in log_of(folder).read_text()
    assert "does not count" not in said_of(folder)


def test_a_run_that_was_configured_for_the_other_division_does_not_count(tmp_path: Path) -> None:
    """So were those of the open category before it named its division."""
    said = said_of(of_open(tmp_path / "c", settings={"submission.division": "closed"}))
    fault = "submission.division closed, while the category fixes submission.division at open"
    assert f"n0016-r1 does not count: {fault} " in f"{said} "
    assert "its log is of" not in said, "once is enough"


@pytest.mark.parametrize(
    ("there", "words"), [('"closed"', "the closed division"), ('""', "no division"), ("null", "no division")]
)
def test_a_log_of_another_division_does_not_count(tmp_path: Path, there: str, words: str) -> None:
    log = log_of(folder := of_open(tmp_path / "c"))
    text = log.read_text()
    log.write_text(text.replace('"submission_division", "value": "open"', f'"submission_division", "value": {there}'))
    assert f"n0016-r1 does not count: its log is of {words} instead of the open " in said_of(folder) + " "


def test_a_division_that_is_none_is_refused(tmp_path: Path) -> None:
    text = (CAMPAIGNS / "mlperf-hpc-3.0.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("    division: open\n", "    division: opne\n"))
    number = text.splitlines().index("    division: open") + 1
    with pytest.raises(InputError, match=rf"line {number}: categories\[1\].division \(opne\) must be one of"):
        read_campaign(tmp_path / "mine.yaml")
