"""Figures that other packages add to the page of a run, through the group ``hpcbench.figures``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from hpcbench import plugins
from hpcbench.results import style
from hpcbench.results.plots import Figure
from hpcbench.results.records import Run
from staging.errors import InputError
from staging.ranks.signals import Interrupted

BUILT_IN = (
    "quality", "loss", "phases", "throughput", "noise_scale", "trust_ratios", "staging-timelines", "beside", "staging",
    "training", "references", "use", "checkpoints",
)  # fmt: skip
"""Names of the suite's own figures and parts of such a page."""


def find_figure(name: str) -> Callable[[Run], Figure | None]:
    """The function that is registered as ``name``. Raises ``InputError`` where it cannot be used."""
    point = plugins.find(plugins.FIGURES, name, BUILT_IN)
    if point is None:
        raise InputError(f"no package registers a figure '{name}'; install its package")
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise InputError(f"{plugins.words(point)} must have a name of letters, digits, _ and -; rename it")
    draw: Callable[[Run], Figure | None] = plugins.load(point)
    if not callable(draw):
        raise InputError(f"{plugins.words(point)} must be a function of a run; mend or uninstall its package")
    return draw


def registered_figures(run: Run) -> tuple[list[Figure], list[str]]:
    """The figures that have something to show of ``run``, by name, and why others cannot be drawn."""
    figures, problems = [], []
    for name in plugins.names(plugins.FIGURES):
        try:
            figure = draw_figure(name, run)
        except InputError as error:  # a page without it is better than no page
            problems.append(str(error))
        else:
            figures += [] if figure is None else [figure]
    return figures, problems


def draw_figure(name: str, run: Run) -> Figure | None:
    """Draw one figure of another package in the style of the page; it gets the name of its entry point."""
    draw = style.styled(find_figure(name))
    try:
        figure = draw(run)
    except Interrupted:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"figure '{name}' cannot draw {run.folder.path} ({reason}); mend its package") from error
    if figure is not None and not isinstance(figure, Figure):
        raise InputError(f"figure '{name}' must give a Figure or None, and gives a {type(figure).__name__}; mend it")
    return None if figure is None else replace(figure, name=name)
