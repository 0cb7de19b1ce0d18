"""What is drawn is written down: by which function, with which caption, and which of its areas are shaded."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from hpcbench.results import style
from hpcbench.results.plots import Figure
from tests.undrawn import empty_svg

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hpcbench", "apps")
AREAS = ("fill_between", "fill_betweenx", "axvspan", "axhspan", "broken_barh")


@dataclass
class Recorder:
    """Everything that was drawn while it recorded."""

    drawers: set[tuple[str, str]] = field(default_factory=set)
    """Module and name of each function that made a canvas or a figure."""
    canvases: list[Canvas] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    areas: list[tuple[Canvas, str, Any]] = field(default_factory=list)
    """Of each shaded area its canvas, what drew it, and its colour."""

    def caption_of(self, canvas: Canvas) -> str:
        """The caption of a canvas; empty for one that is saved without any."""
        return next((figure.caption for figure in self.figures if figure.figure is canvas), "")

    def names_of(self, canvas: Canvas) -> str:
        """The name of a canvas in messages."""
        return next((figure.name for figure in self.figures if figure.figure is canvas), "a canvas without a caption")


def drawing_functions() -> set[tuple[str, str]]:
    """Module and name of every function in the packages that makes a canvas or a figure, by their source."""
    found = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "Figure(" not in text and "canvas(" not in text:
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef) and any(map(draws, ast.walk(function))):
                found.add((module, function.name))
    return found


def draws(node: ast.AST) -> bool:
    """Whether a node is a call of ``Figure`` or ``style.canvas``, or of pyplot's functions that make figures."""
    return isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "Figure", "plots.Figure", "style.canvas", "plt.figure", "plt.subplots"
    )  # fmt: skip


@contextmanager
def recording() -> Iterator[Recorder]:
    """Record within; nothing is rendered, which takes most of the time of a page."""
    recorder = Recorder()
    made, canvas = Figure.__init__, style.canvas

    def make(figure: Figure, *values: Any, **named: Any) -> None:
        made(figure, *values, **named)
        module, name = caller()
        if module.split(".")[0] in PACKAGES:
            recorder.drawers.add((module, name))
            recorder.figures.append(figure)

    def new_canvas(*values: Any, **named: Any) -> Canvas:
        recorder.drawers.add(caller())
        recorder.canvases.append(canvas(*values, **named))
        return recorder.canvases[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "__init__", make)
        patch.setattr(style, "canvas", new_canvas)
        patch.setattr(style, "svg", empty_svg)
        patch.setattr(style, "save", lambda figure, path: path)
        for name in AREAS:
            patch.setattr(Axes, name, noting(recorder, name, getattr(Axes, name)))
        yield recorder


def caller() -> tuple[str, str]:
    """Module and name of the function that called the one that calls this."""
    frame = sys._getframe(2)
    return frame.f_globals["__name__"], frame.f_code.co_name


def noting(recorder: Recorder, name: str, draw: Callable[..., Any]) -> Callable[..., Any]:
    """The function ``draw`` of axes, which also writes down the colour of what it draws."""

    def noted(axes: Axes, *values: Any, **named: Any) -> Any:
        area = draw(axes, *values, **named)
        recorder.areas.append((axes.figure, name, color_of(area)))  # type: ignore[arg-type]
        return area

    return noted


def color_of(area: Any) -> tuple[float, ...]:
    """Red, green, blue and opacity of a patch or of a collection."""
    color = area.get_facecolor()
    return tuple(color) if isinstance(area, Patch) else tuple(map(float, color[0]))


def unnamed_log_axes(canvas: Canvas) -> list[str]:
    """The logarithmic axes whose label, and that of the panels that share them, does not say so."""
    found = []
    whole = {"x": canvas.get_supxlabel(), "y": canvas.get_supylabel()}
    for number, axes in enumerate(axes for axes in canvas.axes if axes.get_visible()):
        for which, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if axis.get_scale() != "log":
                continue
            grouper = axes.get_shared_x_axes() if which == "x" else axes.get_shared_y_axes()
            sharing = grouper.get_siblings(axes)
            texts = [getattr(each, f"{which}axis").get_label_text() for each in sharing]
            titles = [each.get_title("left") for each in sharing] if which == "y" else []
            if not any(re.search(r"\blog\b", text) for text in (*texts, *titles, whole[which])):
                found.append(f"panel {number}, {which}")
    return found


def unnamed_areas(recorder: Recorder) -> list[str]:
    """The shaded areas that neither a caption nor a legend explains."""
    found = []
    for canvas, name, color in recorder.areas:
        legends = [*canvas.legends, *(legend for axes in canvas.axes if (legend := axes.get_legend()) is not None)]
        patches = [patch for legend in legends for patch in legend.findobj(Patch)]
        in_legend = any(tuple(patch.get_facecolor()) == pytest.approx(color) for patch in patches)
        if not in_legend and not re.search(r"\b(shaded|bands?)\b", recorder.caption_of(canvas), re.IGNORECASE):
            found.append(f"{recorder.names_of(canvas)}: {name}")
    return found
