"""Writes plots as SVG and PNG, with two processes where that is safe: drawing is the longest part of an analysis."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from hpcbench.results import style
from hpcbench.results.plots import Figure
from hpcbench.results.report import Drawn
from hpcbench.results.run_folder import write_atomic

XML = '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n'
"""The line before a drawing that is a file of its own."""


def save_figures(figures: Sequence[Figure], folder: Path, forking: bool | None = None) -> dict[str, Drawn]:
    """Write each figure into ``folder``; return them as a page shows them, by name. Raises ``OSError``.

    ``forking`` says whether a second process draws half of them; by default, it does where ``may_fork`` says so.
    """
    mine, others = (figures[::2], figures[1::2]) if (may_fork() if forking is None else forking) else (figures, [])
    if others:
        helper = multiprocessing.get_context("fork").Process(target=save_each, args=(others, folder))
        helper.start()
        save_each(mine, folder)
        helper.join()
        if helper.exitcode:
            save_each(others, folder)
    else:
        save_each(mine, folder)
    return {figure.name: drawn(figure, folder) for figure in figures}


def may_fork() -> bool:
    """Whether a second process gains something and can be forked: on Linux, with two cores and a single thread."""
    return sys.platform == "linux" and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1


def save_each(figures: Sequence[Figure], folder: Path) -> None:
    """Write figures one after another."""
    for figure in figures:
        write_atomic(folder / f"{figure.name}.svg", f"{XML}{Drawn.of(figure).svg}\n")
        style.save(figure.figure, folder / f"{figure.name}.png")


def drawn(figure: Figure, folder: Path) -> Drawn:
    """A figure that was written, as a page shows it."""
    text = (folder / f"{figure.name}.svg").read_text(encoding="utf-8")
    return Drawn.around(figure, text.removeprefix(XML).rstrip("\n"))
