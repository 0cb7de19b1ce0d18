"""How every plot looks: one set of fonts, sizes and colours that colour-blind readers can tell apart.

The hues are Okabe and Ito's ("Color Universal Design", 2008); greys carry what is not data.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas

from hpcbench.phase_names import TABLE
from staging.atomic import replacing
from staging.errors import InputError

INK, MUTED, FAINT, GRID = "#1b2733", "#5d6b7a", "#9aa6b2", "#e4e8ed"
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"
SERIES = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, INK)
"""Colours of runs and series, in order."""

COLORS = {
    "faint": FAINT, "yellow": YELLOW, "orange": ORANGE, "blue": BLUE, "vermillion": VERMILLION, "rose": "#F3B48B",
    "sky": SKY, "green": GREEN, "purple": PURPLE, "muted": MUTED, "pale": "#d3d9df",
}  # fmt: skip
"""Colours by the names that the table of phases uses; rose is vermillion thinned with white."""
DARK = (BLUE, VERMILLION, GREEN)
"""Colours on which white text is the most legible."""
PHASE_COLORS = {phase.name: COLORS[phase.color] for phase in TABLE}
"""The colour of each phase, the same on every page."""

MATH_LOOKS = {"it": "italic", "bf": "bold", "bfit": "italic:bold"}

WIDTH = 8.2
"""Width of a full figure in inches; a page shows it at 1:1."""

P = ParamSpec("P")
R = TypeVar("R")


@cache
def _fonts() -> list[str]:
    wanted = ["Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans"]
    present = set(font_manager.get_font_names())
    return [name for name in wanted if name in present] or ["sans-serif"]


def settings() -> Any:
    """The rc settings of every plot."""
    return {
        "font.family": _fonts(),
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlecolor": INK,
        "axes.titlepad": 8,
        "axes.labelsize": 9,
        "axes.labelcolor": MUTED,
        "axes.edgecolor": FAINT,
        "axes.linewidth": 0.7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": MUTED,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "xtick.major.width": 0.7,
        "ytick.major.width": 0.7,
        "text.color": INK,
        "lines.linewidth": 1.6,
        "lines.solid_capstyle": "round",
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "mathtext.fontset": "custom",
        **{f"mathtext.{kind}": _fonts()[0] for kind in ("rm", "sf", "tt", "cal")},
        **{f"mathtext.{kind}": f"{_fonts()[0]}:{look}" for kind, look in MATH_LOOKS.items()},
        "svg.fonttype": "none",
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
    }


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Run ``function`` under the settings above, leaving matplotlib's own as they were."""

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(settings()):
            return function(*args, **kwargs)

    return inside


def log_label(text: str) -> str:
    """The label of a logarithmic axis: ``nodes, log scale``."""
    return f"{text}, log scale"


def canvas(height: float, width: float = WIDTH) -> Canvas:
    """An empty figure of ``width`` x ``height`` inches with constrained layout, not registered with pyplot."""
    figure = Canvas(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def remark(figure: Canvas, text: str) -> None:
    """Write a small line below a plot, such as the notice of results that nobody verified."""
    figure.supxlabel(text, x=0.995, ha="right", fontsize=7.5, color=MUTED)


@styled
def svg(figure: Canvas, name: str) -> str:
    """The figure as an ``<svg>`` element whose ids start with ``name``, so that many fit into one page."""
    text = io.StringIO()
    no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    lay_out(figure)
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata=no_metadata)
    element = text.getvalue()
    element = element[element.index("<svg") :].strip()
    element = re.sub(r'\bid="', f'id="{name}-', element)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", element)


@styled
def save(figure: Canvas, path: Path) -> Path:
    """Write the figure to ``path`` (``.svg``, ``.png`` at 200 dots per inch), by way of a temporary name."""
    metadata = {"Date": None} if path.suffix == ".svg" else None
    lay_out(figure)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip("."), dpi=200, metadata=metadata)
    return path


def save_in_study(figure: Canvas, path: Path) -> Path:
    """As ``save``, into the folder of a study. Raises ``InputError`` where it cannot be written."""
    try:
        return save(figure, path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written ({error.strerror}); make its folder writable, or report in a copy of the folder"
        ) from None


def lay_out(figure: Canvas) -> None:
    """Find the layout of a figure once, for all its files.

    With a layout engine, Matplotlib draws each file twice and finds the layout twice: most of the time of a page.
    """
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)  # "none" would leave an engine that does nothing, and still draw twice
