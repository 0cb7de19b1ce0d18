"""The pages of recorded studies are what the program makes of their records today."""

from __future__ import annotations

import csv
import re
import shutil
from math import inf
from pathlib import Path
from statistics import fmean

import pytest

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.results import style
from tests.documented_commands import ROOT
from tests.undrawn import empty_svg

STUDIES = ROOT / "docs" / "studies"
RECORDED = sorted(path.parent.relative_to(STUDIES).as_posix() for path in STUDIES.rglob("study.json"))
TEXTS = ("table.txt", "proposal.txt")


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all of them, since one study may take its epochs from another."""
    return Path(shutil.copytree(STUDIES, tmp_path_factory.mktemp("studies") / "studies"))


def test_there_are_some() -> None:
    assert len(RECORDED) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("study", RECORDED)
def test_a_recorded_page_has_the_words_of_today(study: str, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of a page that no longer follow from its records would be quoted for years."""
    monkeypatch.setattr(style, "svg", empty_svg)
    for name in TEXTS:
        (copied / study / name).unlink(missing_ok=True)
    assert main(["study", "report", str(copied / study)]) == 0
    made = {name: text(copied / study / name) for name in TEXTS}
    assert made == {name: text(STUDIES / study / name) for name in TEXTS}, (
        f"make the page again: hpcbench study report docs/studies/{study}"
    )


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam"])
def test_a_pilot_chose_the_target_of_the_study(name: str) -> None:
    """At the smallest batch the fastest optimizer needs three epochs or more, and the page has the pilot's epochs."""
    application = find_application(name)
    config = resolve(application, "study")
    better = application.module("task").build_task(config).better
    epochs: dict[str, list[float]] = {}
    for curve in sorted((STUDIES / f"{name}-pilot" / "runs").glob("*/epochs.csv")):
        optimizer = curve.parent.name.split("-")[1]
        epochs.setdefault(optimizer, []).append(first_at(config.train.target, curve, better))
    means = {optimizer: fmean(found) for optimizer, found in epochs.items()}
    assert 3 <= min(means.values()) < 6
    row = next(
        line for line in (STUDIES / "README.md").read_text().splitlines() if line.startswith(f"| [{name}-pilot]")
    )
    assert f"It chose the target, {config.train.target:g}:" in row
    for optimizer, found in epochs.items():
        if inf in found:
            assert f"{optimizer} not in eight" in row
        else:
            low, high = sorted(found)
            assert re.search(rf"{low:.2f} and {high:.2f}( epochs with| with) {optimizer}\b", row), (optimizer, found)


def first_at(target: float, curve: Path, better: str) -> float:
    """The epoch of the first evaluation at which a recorded run is at the target; infinite where none is."""
    with curve.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    metric = "mae" if better == "lower" else "iou"
    sign = 1 if better == "lower" else -1
    return next((float(row["epoch"]) for row in rows if sign * float(row[metric]) <= sign * target), inf)


def test_the_tutorial_shows_the_recorded_proposal() -> None:
    shown = (ROOT / "docs/tutorials/proposal.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    assert len(shown.splitlines()) == 5
    assert shown in (STUDIES / "cosmoflow-strong" / "proposal.txt").read_text(encoding="utf-8")


def text(path: Path) -> str | None:
    """What a file says, if it is there."""
    return path.read_text(encoding="utf-8") if path.exists() else None
