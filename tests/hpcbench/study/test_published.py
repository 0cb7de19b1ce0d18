"""The page docs/critical_batch_size.md shows what the package's reference convergence points give."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from hpcbench.cli.main import main
from hpcbench.study.fit import INTERVAL_BATCHES
from hpcbench.study.published import (
    APPLICATIONS,
    PICTURE,
    Series,
    draw,
    fit_table,
    latest,
    point_table,
    published_series,
    write_published,
)
from staging.errors import InputError

PAGE = Path(__file__).parents[3] / "docs" / "critical_batch_size.md"


@pytest.mark.parametrize(("name", "table"), [("fit_table", fit_table), ("point_table", point_table)])
def test_the_page_holds_the_table(name: str, table: object) -> None:
    start = f"<!-- table: hpcbench.study.published.{name} -->\n"
    text = PAGE.read_text(encoding="utf-8").split(start)[1].split("<!-- end of table -->")[0]
    assert callable(table)
    assert text == table()


def test_the_page_shows_a_picture_that_is_there() -> None:
    assert f"studies/published/{PICTURE}" in PAGE.read_text(encoding="utf-8")
    assert (PAGE.parent / "studies" / "published" / PICTURE).stat().st_size > 10_000


@pytest.mark.parametrize("application", APPLICATIONS)
def test_every_single_run_of_the_package_is_fitted(application: str) -> None:
    for each in published_series(application):
        for rules in each.rules:
            text = (
                files("mlperf_logging").joinpath("rcp_checker", f"hpc_{rules}", f"rcps_{application}.json").read_text()
            )
            runs = {point["BS"]: sorted(point["Epochs to converge"]) for point in json.loads(text).values()}
            if not each.kept:
                assert {point.batch_size for point in each.points} == set(runs)
            for point in each.points:
                assert list(point.epochs) == runs[point.batch_size]
            assert each.fit.n == sum(len(point.epochs) for point in each.points)


def off(series: Series, batch: int) -> float:
    """How far the mean of a point is from the fit of a series, which ends half an epoch before its evaluation."""
    point = next(each for each in latest(series.application, kept=False).points if each.batch_size == batch)
    return point.mean / (float(series.fit.predict(batch)) + 0.5) - 1


def test_what_the_page_says() -> None:
    deepcam, cosmoflow = (latest(name, kept=False) for name in ("deepcam", "cosmoflow"))
    assert max(abs(off(deepcam, point.batch_size)) for point in deepcam.points) < 0.105
    assert (deepcam.fit.e_min, deepcam.fit.b_crit) == (pytest.approx(5.9, abs=0.05), pytest.approx(760, abs=5))
    assert off(cosmoflow, 32) == pytest.approx(-0.37, abs=0.005)
    assert off(cosmoflow, 64) == pytest.approx(0.37, abs=0.005)
    assert (deepcam.fit.scatter, cosmoflow.fit.scatter) == (
        pytest.approx(0.07, abs=5e-3),
        pytest.approx(0.285, abs=5e-3),
    )
    assert max(deepcam.fit.scatter_p, cosmoflow.fit.scatter_p) < 1e-4
    kept = latest("cosmoflow", kept=True)
    assert [off(kept, batch) for batch in (64, 128)] == [pytest.approx(1.07, abs=5e-3), pytest.approx(0.64, abs=5e-3)]
    recipes = [(point.dropout, point.weight_decay) for point in cosmoflow.points]
    assert recipes == [(0.5, 0), (0, 0.01), (0.5, 0), (0, 0.01), (0.5, 0)]
    for name, before, now in (("deepcam", 1080, 760), ("cosmoflow", 760, 370)):
        first = next(each for each in published_series(name) if not each.kept and "1.0.0" in each.rules)
        assert (first.fit.b_crit, latest(name, kept=False).fit.b_crit) == (
            pytest.approx(before, rel=0.01),
            pytest.approx(now, rel=0.01),
        )
    assert all(len(each.points) < INTERVAL_BATCHES for name in APPLICATIONS for each in published_series(name))


def test_the_picture_shows_every_point_and_both_fits() -> None:
    for axes, application in zip(draw().axes, APPLICATIONS, strict=True):
        points = latest(application, kept=False).points
        means = [line for line in axes.lines if line.get_marker() == "o"]
        assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in means] == [
            (p.batch_size, p.mean) for p in points
        ]
        for kept, line in zip((False, True), [line for line in axes.lines if line.get_marker() != "o"], strict=True):
            fitted = latest(application, kept=kept).fit.predict(line.get_xdata())
            np.testing.assert_allclose(line.get_ydata(), fitted)


def test_the_command_prints_the_tables_and_writes_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "published", str(tmp_path / "new")]) == 0
    out = capsys.readouterr().out
    assert fit_table() in out
    assert point_table() in out
    assert (tmp_path / "new" / PICTURE).exists()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file cannot be written \(.*\); give another folder"):
        write_published(tmp_path / "file")
