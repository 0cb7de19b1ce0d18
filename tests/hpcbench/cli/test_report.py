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


@pytest.mark.slow
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


@pytest.mark.usefixtures("_no_science", "undrawn")
def test_a_pattern_names_pages_and_waiting_jobs_as_well(
    build_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [build_run(name, epochs=3) for name in ("a", "b")]
    (tmp_path / "waiting").mkdir()
    (tmp_path / "waiting" / "job.json").touch()
    (tmp_path / "comparison.html").touch()
    (tmp_path / "figures").mkdir()
    every = [str(path) for path in sorted(tmp_path.iterdir())]
    assert main(["report", *every]) == 0
    said = capsys.readouterr()
    assert said.err == f"{tmp_path / 'waiting'} is left out: its run has not ended\n"
    pages = [*(run / "report.html" for run in runs), tmp_path / "comparison.html"]
    assert said.out.splitlines()[-3:] == [f"report: {page}" for page in pages]
    assert main(["check", *every]) == 1  # the logs of these runs are made up
    checked = capsys.readouterr()
    assert [line.split()[0] for line in checked.out.splitlines()[2:4]] == ["a", "b"]
    assert main(["report", str(tmp_path / "waiting")]) == 2


@pytest.mark.usefixtures("_no_science", "undrawn")
def test_a_run_whose_folder_cannot_be_written_is_compared_all_the_same(
    build_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (build_run(name, epochs=3) for name in ("a", "b"))
    (first / "report.html" / "something").mkdir(parents=True)  # nothing can take its place
    out = tmp_path / "all.html"
    assert main(["report", str(first), str(second), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[-2:] == [f"report: {second / 'report.html'}", f"report: {out}"]
    cannot = f"{first / 'report.html'} cannot be written (Is a directory)"
    assert said.err == f"{cannot}, so this run has no page of its own\n"
    assert main(["report", str(first)]) == 2
    assert capsys.readouterr().err == f"hpcbench: error: {cannot}; give --out FILE\n"

    monkeypatch.setattr("hpcbench.results.report.run_figures", lambda run: [plots.throughput(run)])
    (second / "figures" / "throughput.png" / "something").mkdir(parents=True)
    assert main(["report", str(second), "--png"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"hpcbench: error: {second / 'figures' / 'throughput.png'} cannot be written (")
    assert said.err.endswith("; leave out --png, or give --out FILE in a folder to write\n")


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
