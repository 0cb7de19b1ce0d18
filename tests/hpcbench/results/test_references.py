"""Reference points: MLPerf's own files are read, and means and deviations are those of their values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mlperf_logging.rcp_checker
import numpy as np
import pytest

from hpcbench.application import Application
from hpcbench.results.references import markdown_table, read_references, references, spread
from staging.errors import DataError

PUBLISHED = Path(mlperf_logging.rcp_checker.__file__).parent / "hpc_3.0.0"

POINT: dict[str, Any] = {
    "Benchmark": "cosmoflow", "BS": 8, "Epochs to converge": [8, 9, 9, 10, 14], "Hyperparams": {"opt_name": "sgd"},
    "Hardware": "2 cores of a laptop", "Seconds": [40.0, 44.0, 45.0, 50.0, 71.0], "Seeds": [1, 2, 3, 4, 5],
    "Target": 0.3, "Quality": {"mae": [0.28, 0.29, 0.30]}, "Baselines": {"mean": {"mae": 0.50}, "good": {"mae": 0.27}},
    "Commit": "3f0c2d1", "Command": "hpcbench train cosmoflow --preset laptop",
}  # fmt: skip


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application in a package of its own, with reference points of one preset."""
    package = tmp_path / "science_for_references"
    (package / "references").mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "references" / "laptop.json").write_text(json.dumps({"laptop_ref_8": POINT}), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return Application("science", "A science", "cosmoflow", "science_for_references")


@pytest.mark.parametrize("benchmark", ["cosmoflow", "deepcam"])
def test_published_points_are_read(benchmark: str) -> None:
    points = read_references(PUBLISHED / f"rcps_{benchmark}.json")
    assert len(points) >= 4
    for point in points:
        mean, deviation = (float(text.replace(",", "")) for text in spread(point.epochs, 6).split(" ± "))
        assert mean == pytest.approx(np.mean(point.epochs), rel=1e-5)
        assert deviation == pytest.approx(np.std(point.epochs, ddof=1), rel=0.06), "to two digits"


def test_the_squared_deviation_is_that_of_seeds_on_average() -> None:
    """Of 5 seeds; the population form would give four fifths of it."""
    draws = np.random.default_rng(1).normal(100, 10, (4000, 5))
    told = [float(spread(list(values)).split(" ± ")[1]) for values in draws]
    assert np.mean(np.square(told)) == pytest.approx(100, rel=0.06)


def test_a_single_run_has_no_deviation() -> None:
    assert (spread([8.0]), spread([])) == ("8.00", "-")


def test_margin_is_in_standard_deviations_and_negative_where_the_baseline_is_better(application: Application) -> None:
    (point,) = references(application, "laptop")
    assert point.margin("mae", "mean") == pytest.approx((0.50 - 0.29) / 0.01)
    assert point.margin("mae", "good") == pytest.approx((0.27 - 0.29) / 0.01)
    assert point.margin("iou", "mean") is None
    assert references(application, "smoke") == []


def test_markdown_table(application: Application) -> None:
    text = markdown_table(application)
    rows = [line for line in text.splitlines() if line.startswith("| laptop")]
    cells = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert cells == ["laptop", "2 cores of a laptop", "8", "0.3", "5", "10.0 ± 2.3", "50.0 ± 12"]
    assert [row.split("|")[-2].strip() for row in rows[1:]] == ["21", "-2.0"]
    assert "| runs (n) |" in text
    assert "Mean ± sample standard deviation over all n runs." in text.splitlines()
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")}
    assert widths == {8, 7}


def test_application_without_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "science_without_references").mkdir()
    (tmp_path / "science_without_references" / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    bare = Application("bare", "Bare", "bare", "science_without_references")
    assert markdown_table(bare) == "No reference runs are recorded yet.\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not readable as JSON"),
        ("[]", "is not an object of reference points"),
        ('{"a": {"BS": 8}}', "point 'a' lacks Benchmark, Epochs to converge, Hyperparams"),
        ('{"a": {"Benchmark": "x", "BS": 8, "Epochs to converge": [], "Hyperparams": {}}}', "no 'Epochs to converge'"),
    ],
)
def test_damaged_references(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "laptop.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=problem):
        read_references(path)
