"""Scores of one's own say on every page and table that nobody has verified them, once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.results.not_verified import NOT_VERIFIED

PACKAGE = Path(__file__).parents[3] / "hpcbench"
ELSEWHERE = {"analysis.html", "prediction.html"}
"""Pages that say it in words of their own, where there is something of one's own."""


@pytest.mark.slow
def test_pages_and_table_of_runs_say_so(
    build_run: Any, undrawn: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runs = [build_run("one"), build_run("two")]
    assert main(["report", *map(str, runs), "--out", str(tmp_path / "both.html")]) == 0
    assert capsys.readouterr().out.count(f"{NOT_VERIFIED}.") == 1
    for page in (*(run / "report.html" for run in runs), tmp_path / "both.html"):
        (footer,) = re.findall(r"<footer>.*?</footer>", page.read_text(encoding="utf-8"), re.DOTALL)
        assert footer.count(NOT_VERIFIED) == 1


def test_no_page_leaves_it_out() -> None:
    pages = [path for path in PACKAGE.rglob("templates/*.html") if '{% extends "base.html" %}' in path.read_text()]
    assert len(pages) >= 9
    assert {path.name for path in pages if "{% block verified %}" in path.read_text()} == ELSEWHERE
    assert NOT_VERIFIED in (PACKAGE / "results" / "templates" / "base.html").read_text()
