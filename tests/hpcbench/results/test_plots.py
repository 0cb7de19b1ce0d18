"""Plots hold the numbers of the run."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from hpcbench.results import compare, plots, style
from hpcbench.results.records import Run, read_run
from staging.errors import InputError


@pytest.fixture
def run(build_run: Any) -> Run:
    """A run that reached its target."""
    return read_run(build_run())


def test_quality_shows_target_and_baselines_on_both_panels(run: Run) -> None:
    drawn = plots.quality(run)
    assert drawn is not None
    for axes in drawn.figure.axes:
        flat = {
            line.get_ydata()[0] for line in axes.lines if len(set(line.get_ydata())) == 1 and len(line.get_ydata()) == 2
        }
        assert flat == {0.3, 0.4987, 0.3216}
        curve = max(axes.lines, key=lambda line: len(line.get_ydata()))
        assert np.array_equal(curve.get_ydata(), run.epochs["mae"])
        low, high = axes.get_ylim()
        assert low < 0.3 < 0.4987 < high
    texts = " ".join(text.get_text().replace("\n", " ") for text in drawn.figure.axes[-1].texts)
    assert "0.3 target" in texts
    assert "0.4987 predict the mean" in texts
    assert "0.3216 ridge regression" in texts


def test_phases_add_up_to_wall_time(run: Run) -> None:
    drawn = plots.phases(run)
    assert drawn is not None
    (axes,) = drawn.figure.axes
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(run.summary.wall_s)
    labels = [bar.get_label() for bar in axes.patches]
    shares = [float(re.search(r"([\d.]+) %", label)[1]) for label in labels]
    assert sum(shares) == pytest.approx(100, abs=0.4)
    assert any(label.startswith("other") for label in labels)
    assert any("37.66 s" in label for label in labels)


def test_loss_shows_every_step_and_its_rate(run: Run) -> None:
    drawn = plots.training_loss(run)
    assert drawn is not None
    upper, lower = drawn.figure.axes
    assert np.array_equal(upper.lines[0].get_ydata(), run.steps["loss"])
    assert np.array_equal(lower.lines[0].get_ydata(), run.steps["lr"])


def test_throughput_marks_the_median_of_the_summary(run: Run) -> None:
    drawn = plots.throughput(run)
    assert drawn is not None
    (axes,) = drawn.figure.axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(run.epochs["samples_per_s"].tolist())
    assert axes.lines[0].get_ydata()[0] == run.summary.samples_per_s


def test_run_without_rows_has_no_plots_of_them(build_run: Any) -> None:
    folder = build_run(status="aborted", metrics={}, best=None, phases_s={}, wall_s=0.0)
    (folder / "steps.csv").unlink()
    (folder / "epochs.csv").unlink()
    assert plots.run_figures(read_run(folder)) == []


def test_smoothing_keeps_a_constant_and_follows_a_step() -> None:
    assert plots.smooth(np.full(50, 0.7), 10) == pytest.approx(np.full(50, 0.7))
    after = plots.smooth(np.concatenate((np.zeros(100), np.ones(100))), 10)
    assert after[99] == pytest.approx(0, abs=1e-12)
    assert after[-1] == pytest.approx(1, abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_labels_keep_apart_in_order_and_inside(values: list[float]) -> None:
    placed = plots.spread(values, 0.1)
    ordered = [placed[index] for index in sorted(range(len(values)), key=lambda index: values[index])]
    assert all(upper - lower >= 0.1 - 1e-9 for lower, upper in pairwise(ordered))
    assert min(placed) >= -1e-9
    assert max(placed) <= 1 + 1e-9


def test_legend_reads_by_row() -> None:
    assert plots.by_row([1, 2, 3, 4, 5, 6, 7], 3) == [1, 4, 7, 2, 5, 3, 6]


def test_settings_and_pyplot_are_left_alone(run: Run) -> None:
    before = dict(mpl.rcParams)
    plots.run_figures(run)
    assert dict(mpl.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_svg_is_the_same_every_time_and_its_ids_are_its_own(run: Run, tmp_path: Path) -> None:
    one, two = (style.svg(plots.phases(run).figure, "phases") for _ in range(2))
    assert one == two
    assert set(re.findall(r'\bid="(\w+)-', one)) == {"phases"}
    assert all(target.startswith("phases-") for target in re.findall(r'(?:url\(#|href="#)([^)"]+)', one))


def test_png_has_200_dots_per_inch(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "figures").mkdir()
    path = style.save(plots.phases(run).figure, tmp_path / "figures" / "phases.png")
    with Image.open(path) as image:
        assert image.width == pytest.approx(style.WIDTH * 200, abs=2)
    assert [file.name for file in path.parent.iterdir()] == ["phases.png"]


def test_colours_of_phases_differ() -> None:
    assert len(set(style.PHASE_COLORS.values())) == len(style.PHASE_COLORS) > 10


def test_comparison_draws_every_run(build_run: Any) -> None:
    runs = {name: read_run(build_run(name, epochs=epochs)) for name, epochs in (("a", 6), ("b", 9))}
    quality, phases = compare.figures(runs)
    curves = [line for line in quality.figure.axes[0].lines if line.get_label() in runs]
    assert [len(line.get_xdata()) for line in curves] == [6, 9]
    assert sum(bar.get_width() for bar in phases.figure.axes[0].patches) == pytest.approx(2 * 46.9)


def test_a_bar_of_several_ranks_is_their_mean_wall_time(build_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank spends a minute of its 160 s in another phase, which a median over ranks would lose."""
    runs = {"alone": read_run(build_run("alone")), "four": read_run(build_run("four"))}
    runs["four"].summary.world_size = 4
    others = ("input_wait", "communication", "evaluation", "checkpoint")
    rows = [
        {"rank": rank, "node": "a", "run_wall_s": 160.0, "run_compute_s": 100.0}
        | {f"run_{name}_s": 60.0 if name == others[rank] else 0.0 for name in others}
        for rank in range(4)
    ]
    monkeypatch.setattr(Run, "rank_rows", lambda run: rows)
    _, phases = compare.figures(runs)
    widths = [bar.get_width() for bar in phases.figure.axes[0].patches if round(bar.get_y() + 0.33) == 1]
    assert sum(widths) == pytest.approx(160)
    assert sorted(width for width in widths if width) == pytest.approx([15, 15, 15, 15, 100])
    assert phases.finding == f"Compute takes 62 % to {100 * 37.66 / 46.9:.0f} % of the time"
    assert "each is the mean over them" in phases.caption


def test_runs_are_named_by_what_tells_them_apart(build_run: Any, tmp_path: Path) -> None:
    runs = [read_run(build_run(name)) for name in ("x/one", "y/one")]
    assert compare.run_names(runs) == ["x/one", "y/one"]
    assert compare.run_names(runs[:1]) == ["one"]
    assert len(set(compare.run_names([runs[0], runs[0]]))) == 2


def empty_plot() -> style.Canvas:
    """A figure with axes and nothing in them."""
    figure = style.canvas(2)
    figure.subplots()
    return figure


def test_two_that_write_a_picture_at_once_both_leave_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as two commands that draw the page of one run."""
    path, figure = tmp_path / "quality.svg", empty_plot()
    while_writing = figure.savefig

    def interrupted(file: Path, **settings: Any) -> None:
        while_writing(file, **settings)
        style.save(empty_plot(), path)

    monkeypatch.setattr(figure, "savefig", interrupted)
    style.save(figure, path)
    assert path.read_text().rstrip().endswith("</svg>")
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = empty_plot()

    def fail(file: Path, **_: Any) -> None:
        file.write_text("<svg")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(OSError, match="No space left"):
        style.save(figure, tmp_path / "quality.svg")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("epochs", "ticks"),
    [
        ([1], [1]),
        ([1, 2, 3], [1, 2, 3]),
        ([0.5, 1], [0.5, 1]),
        ([0.25], [0.25]),
        (range(1, 41), [6, 12, 18, 24, 30, 36]),
        ([0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4], [1, 2, 3, 4]),
    ],
)
def test_epochs_have_ticks_where_something_was_evaluated(epochs: Any, ticks: list[float]) -> None:
    axes = Figure().subplots()
    axes.plot(list(epochs), [0.0] * len(list(epochs)))
    plots.epoch_axis(axes, epochs, 8)
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if max(low, epochs[0]) <= tick <= high] == pytest.approx(ticks)


def test_a_plot_of_a_study_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file in its place", encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.png cannot be written \(Not a directory\); make its folder writable"):
        style.save_in_study(empty_plot(), tmp_path / "folder" / "a.png")
