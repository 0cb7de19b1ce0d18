"""Damaged files of a campaign's runs: one line with exit code 2, or a run that does not count; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcbench.campaign.folder import CampaignFolder
from hpcbench.cli.main import main
from tests.hpcbench.campaign.made_up import make_size, shipped

DEEP = "[" * 100_000 + "]" * 100_000
RUN = "baseline/s1/runs/n0001-r1"


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    """Three replicates of ESIF-HPC-4's first scenario on a node."""
    run = {"local": 12, "epochs": 5, "epoch_s": 1000.0}
    return make_size(tmp_path / "c", shipped("esif-hpc-4"), "s1", "baseline", 1, [run] * 3)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (f"{RUN}/epochs.csv", "epoch,train_s\n1,2\n", "is not a table of epochs with step and train_s; restore it"),
        (f"{RUN}/epochs.csv", "epoch,step,train_s\n1,many,2\n", "is not a table of epochs with step and train_s"),
        (f"{RUN}/epochs.csv", "", "is not a table"),
        ("baseline/s1/study.json", DEEP, "study.json: cannot be read (maximum recursion depth exceeded"),
        ("campaign.json", DEEP, "campaign.json: cannot be read (maximum recursion depth exceeded"),
    ],
)
def test_one_line(folder: CampaignFolder, capsys: pytest.CaptureFixture[str], name: str, text: str, said: str) -> None:
    (folder.path / name).write_text(text)
    assert main(["campaign", "report", str(folder.path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(folder.path / name) in line
    assert said in line


def test_an_epoch_without_its_seconds_is_left_out(folder: CampaignFolder) -> None:
    (folder.path / RUN / "epochs.csv").write_text("epoch,step,train_s\n1,10,20\n2,20,\n")
    assert main(["campaign", "report", str(folder.path)]) == 0
    assert ",2.0," in folder.response.read_text().splitlines()[1]


@pytest.mark.parametrize(
    "environment",
    [DEEP, "[]", json.dumps({"installation": {"basis": "RECORD", "unchanged": True}}),
     json.dumps({"installation": {"basis": "commit", "unchanged": False, "commit": "a"}})],
    ids=("deep", "a list", "without distribution", "without files"),
)  # fmt: skip
def test_packages_that_a_run_tells_nothing_of(
    folder: CampaignFolder, capsys: pytest.CaptureFixture[str], environment: str
) -> None:
    (folder.path / RUN / "environment.json").write_text(environment)
    assert main(["campaign", "report", str(folder.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "n0001-r1 does not count: nothing tells whether the installed packages are the released ones" in said
    assert "(median of 2)" in said
