"""The pages of recorded studies are what the program makes of their records today."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.results import style
from tests.documented_commands import ROOT
from tests.undrawn import empty_svg

STUDIES = ROOT / "docs" / "studies"
RECORDED = sorted(path.parent.name for path in STUDIES.glob("*/study.json"))
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


def test_the_tutorial_shows_the_recorded_proposal() -> None:
    shown = (ROOT / "docs/tutorials/proposal.md").read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    assert len(shown.splitlines()) == 5
    assert shown in (STUDIES / "cosmoflow-strong" / "proposal.txt").read_text(encoding="utf-8")


def text(path: Path) -> str | None:
    """What a file says, if it is there."""
    return path.read_text(encoding="utf-8") if path.exists() else None
