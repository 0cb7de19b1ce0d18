"""``hpcbench report`` on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.cli.main import main
from hpcbench.results import plots


@pytest.fixture
def _no_science(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.cosmoflow.plots.figures", lambda _: [])


@pytest.mark.usefixtures("_no_science")
def test_report_prints_a_table_and_the_pages(build_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build_run()
    assert main(["report", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert max(map(len, lines[:3])) <= 100
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.usefixtures("_no_science")
def test_comparison_and_plots_on_request(
    build_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcbench.results.report.run_figures", lambda run: [plots.throughput(run)])
    out = tmp_path / "all.html"
    runs = [str(build_run(name, epochs=3)) for name in ("a", "b")]
    assert main(["report", *runs, "--out", str(out), "--png"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {out}"
    assert (tmp_path / "a" / "figures" / "throughput.png").is_file()
    assert (tmp_path / "figures" / "cosmoflow-quality.png").is_file()


def test_folder_that_is_no_run_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "summary.json" in error


def test_damaged_summary_is_bad_input(build_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build_run()
    (folder / "summary.json").write_text("{}", encoding="utf-8")
    assert main(["report", str(folder)]) == 2
    assert "summary.json" in capsys.readouterr().err
