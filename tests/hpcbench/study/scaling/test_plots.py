"""The plots of a scaling study: what they draw is what was measured, and they are left out where they show nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer

from hpcbench.phase_names import STEP_PARTS
from hpcbench.results import style
from hpcbench.results.plots import Figure
from hpcbench.study.scaling import phase_plots, plots
from hpcbench.study.scaling.point_results import PointResult
from hpcbench.study.scaling.scaling_laws import fit_amdahl
from tests.hpcbench.study.scaling.test_table import point, run, solved

ROWS = [point(1, 90.0, 100.0, 110.0), point(2, 160.0, 170.0, 165.0), point(4, 200.0, 230.0, 220.0)]


def axes_of(figure: Figure | None, number: int = 0) -> Axes:
    """A panel."""
    assert figure is not None
    return figure.figure.axes[number]


def dots(axes: Axes) -> list[tuple[float, float]]:
    """What is drawn as single repeats."""
    lines = [line for line in axes.lines if line.get_marker() == "."]
    return [(float(x), float(y)) for line in lines for x, y in np.array(line.get_data()).T]


def staged(*pairs: tuple[int, float]) -> list[PointResult]:
    """Sizes with their staging bandwidth."""
    return [replace(point(nodes), runs=[run(1.0, staging_bytes_per_s=speed)]) for nodes, speed in pairs]


def everything(simulated: bool = False) -> list[Figure]:
    """Each plot of a study with two variants."""
    rows = [replace(row, variant=name, runs=[replace(each, staging_bytes_per_s=1e9 * row.nodes) for each in row.runs])
            for name in ("a", "b") for row in ROWS]  # fmt: skip
    fits = {name: fit_amdahl([1, 2, 4], [100.0, 165.0, 220.0]) for name in ("a", "b")}
    solutions = {name: [solved(1, 400.0), solved(2, 300.0), solved(4, 250.0)] for name in ("a", "b")}
    found = [plots.throughput(rows, "strong", fits, simulated), plots.efficiencies(rows, simulated)]
    found += [plots.variants(rows, simulated), phase_plots.phases(rows, simulated)]
    found += [phase_plots.staging(rows, simulated), phase_plots.solution(solutions, simulated)]
    return [figure for figure in found if figure is not None]


def test_a_plot_that_has_nothing_to_show_is_none() -> None:
    alone = [point(4, 100.0, 110.0), point(8, left=3)]
    assert plots.throughput(alone, "weak") is None
    assert plots.efficiencies(alone) is None
    assert plots.variants(ROWS) is None
    assert phase_plots.staging(ROWS) is None, "nothing was staged"
    assert phase_plots.staging(staged((1, 1e9))) is None
    assert phase_plots.phases([point(1, left=1)]) is None
    assert phase_plots.phases(alone) is not None, "one size has parts of a step"
    assert phase_plots.solution({"": [solved(1, 60.0)]}) is None
    assert phase_plots.solution({}) is None


def test_every_repeat_is_a_dot_and_the_ideal_grows_with_the_nodes() -> None:
    axes = axes_of(plots.throughput(ROWS, "strong"))
    assert dots(axes) == [(row.nodes, rate) for row in ROWS for rate in row.values("samples_per_s")]
    ideal = next(line for line in axes.lines if line.get_color() == style.MUTED)
    assert np.array(ideal.get_data()).T.tolist() == [[1, 100], [4, 400]]


def test_efficiency_is_drawn_with_the_reach_of_its_repeats() -> None:
    figure = plots.efficiencies(ROWS)
    axes = axes_of(figure)
    assert [value for _, value in dots(axes)[-3:]] == [pytest.approx(each) for each in (0.5, 0.575, 0.55)]
    assert [text.get_text() for text in axes.texts] == ["100 %", "82 %", "55 %"]


def test_fits_are_drawn_where_there_are_any() -> None:
    rates = [rate for row in ROWS for rate in row.values("samples_per_s")]
    nodes = [row.nodes for row in ROWS for _ in row.runs]
    good = plots.throughput(ROWS, "strong", {"": fit_amdahl(nodes, rates)})
    assert good is not None
    assert "Amdahl's law" in good.caption
    assert len(axes_of(good).collections) == 1, "the band"
    none = plots.throughput(ROWS[:2], "strong", {"": fit_amdahl(nodes[:6], rates[:6])})
    assert none is not None
    assert "law" not in none.caption
    assert not axes_of(none).collections


def bars(axes: Axes) -> dict[str, list[float]]:
    """Heights by part of a step."""
    found = {}
    for group in axes.containers:
        assert isinstance(group, BarContainer)
        found[str(group.get_label())] = [float(bar.get_height()) for bar in group]
    return found


def test_bars_are_milliseconds_and_shares_of_a_step() -> None:
    seconds = dict(zip(STEP_PARTS, (0.01, 0.05, 0.02, 0.004, 0.015, 0.001), strict=True))
    figure = phase_plots.phases([replace(point(2), runs=[run(1.0, step_s=seconds)])])
    left, right = bars(axes_of(figure, 0)), bars(axes_of(figure, 1))
    assert list(left) == list(STEP_PARTS)
    assert list(left.values()) == [[pytest.approx(height)] for height in (10, 50, 20, 4, 15, 1)]
    assert list(right.values()) == [[pytest.approx(share)] for share in (0.1, 0.5, 0.2, 0.04, 0.15, 0.01)]


def test_every_variant_has_a_panel_of_its_phases() -> None:
    figure = phase_plots.phases([point(1, 1.0, variant=name) for name in "abcde"])
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.figure.axes if axes.get_visible()] == list("abcde")


def luminance(phase: str) -> float:
    """What is left of a colour in grey."""
    return float(np.dot(to_rgb(style.PHASE_COLORS[phase]), (0.299, 0.587, 0.114)))


def test_parts_of_a_step_can_be_told_apart_in_grey() -> None:
    for one, other in combinations(STEP_PARTS, 2):
        hatched = phase_plots.HATCHES.get(one, "") != phase_plots.HATCHES.get(other, "")
        assert hatched or abs(luminance(one) - luminance(other)) > 0.3, (one, other)


def test_variants_can_be_told_apart_in_grey() -> None:
    found = plots.looks_of([str(number) for number in range(7)])
    assert len({look["marker"] for look in found.values()}) == 7


def test_only_variants_that_can_be_told_apart_are_drawn() -> None:
    rows = [point(nodes, speed, variant=f"{speed:g}") for speed in range(1, 10) for nodes in (1, 2)]
    assert {row.variant for row in plots.leading(rows)} == set("3456789"), "the fastest seven"
    assert plots.leading(rows[:4]) == rows[:4]


def test_long_names_leave_room_for_the_axes() -> None:
    rows = [point(nodes, 10.0 * nodes, variant=f"{number} {'bucket_bytes 1048576, ' * 4}")
            for number in range(7) for nodes in (1, 2, 4)]  # fmt: skip
    for figure in (plots.throughput(rows, "weak"), plots.efficiencies(rows), plots.variants(rows)):
        axes = axes_of(figure)
        axes.figure.canvas.draw()
        assert axes.get_window_extent().height > 1.4 * axes.figure.dpi, "inches"


def test_staging_is_drawn_in_gigabytes_per_second() -> None:
    figure = phase_plots.staging(staged((1, 2e9), (4, 5e9)))
    axes = axes_of(figure)
    assert dots(axes) == [(1, 2e9), (4, 5e9)]
    assert axes.get_ylabel() == "staging bandwidth (GB/s), log scale"
    assert axes.yaxis.get_major_formatter()(5e9, 0) == "5"


def test_the_best_variant_of_each_size_is_filled() -> None:
    rows = [point(1, 10.0, variant="a"), point(1, 12.0, variant="b"), point(2, 30.0, variant="a"),
            point(2, 20.0, variant="b")]  # fmt: skip
    figure = plots.variants(rows)
    assert figure is not None
    for axes, best in zip(figure.figure.axes, (12.0, 30.0), strict=True):
        medians = [line for line in axes.lines if line.get_marker() != "."]
        filled = [line.get_xdata()[0] for line in medians if line.get_markerfacecolor() != "white"]  # type: ignore[index]
        assert filled == [best]


def test_fastest_and_cheapest_are_marked_and_extrapolated_sizes_are_hollow() -> None:
    found = [solved(1, 3600.0), solved(2, 2000.0), solved(4, 1500.0, extrapolated=True)]
    figure = phase_plots.solution({"": found})
    assert figure is not None
    left, right = figure.figure.axes
    assert [text.get_text() for text in left.texts] == ["fastest: 4 nodes"]
    assert [text.get_text() for text in right.texts] == ["cheapest: 1 node"]
    hollow = [line for line in left.lines if line.get_marker() == "o" and line.get_markerfacecolor() == "white"]
    assert [np.asarray(line.get_xdata()).tolist() for line in hollow] == [[4]]
    assert "Hollow" in figure.caption
    assert left.get_ylabel() == "time to solution (min)"


@pytest.mark.parametrize(("simulated", "label"), [(False, "nodes"), (True, "simulated nodes")])
def test_axes_say_whether_nodes_are_simulated(simulated: bool, label: str) -> None:
    found = everything(simulated)
    assert [figure.name for figure in found] == [
        "throughput",
        "efficiency",
        "variants",
        "phases",
        "staging",
        "solution",
    ]
    for figure in found:
        shown: list[Any] = [axes.get_xlabel() for axes in figure.figure.axes] + [figure.figure.get_supxlabel()]
        titles = [axes.get_title(loc="left") for axes in figure.figure.axes]
        named = {label, f"{label}, log scale"} & {*shown}
        assert named or any(title.endswith(f" {label}") for title in titles), figure.name


def test_svg_is_well_formed() -> None:
    for figure in everything():
        assert ET.fromstring(style.svg(figure.figure, figure.name)).tag.endswith("svg")


def apart(sizes: Sequence[int], inches: float) -> bool:
    """Whether labels of 8.5 points, a digit of which is about 0.066 inches wide, do not touch."""
    scale = inches / max(math.log2(sizes[-1] / sizes[0]), 1)
    return all(
        math.log2(high / low) * scale > 0.033 * (len(f"{low:,}") + len(f"{high:,}")) for low, high in pairwise(sizes)
    )


@given(st.lists(st.integers(1, 20_000), min_size=2, max_size=30, unique=True), st.sampled_from([3.3, 7.2]))
def test_named_sizes_do_not_collide(nodes: list[int], inches: float) -> None:
    named = sorted(plots.named_sizes(nodes, inches))
    assert apart(named, inches)
    assert max(nodes) in named
    assert set(named) <= set(nodes)


def test_doublings_up_to_a_thousand_nodes_are_all_named() -> None:
    nodes = [2**power for power in range(11)]
    assert plots.named_sizes(nodes, 7.2) == set(nodes)
