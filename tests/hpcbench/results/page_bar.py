"""What the bar of the phases on a page says, and what it must say, computed from the tables of the run."""

from __future__ import annotations

from pathlib import Path

from hpcbench.results import units
from hpcbench.results.plots import phases
from hpcbench.results.records import read_run

from .page_tables import Tables

LABELS = {"input_wait": "input wait"}
WITHIN, LISTED = 0.09, 5e-4
"""Parts of the bar from which on a phase has its share written in it, and a line in the legend."""


def drawn_shares(folder: Path) -> list[str]:
    """Texts of the bar that is drawn of a run folder, as its page has it, in alphabetical order."""
    drawn = phases(read_run(folder))
    assert drawn is not None
    (axes,), (legend,) = drawn.figure.axes, drawn.figure.legends
    return sorted(text.get_text() for text in (*legend.get_texts(), *axes.texts))


def expected_shares(t: Tables) -> list[str]:
    """Of one rank the sum over its attempts and its part of their wall time; of several the median of each."""
    names = list(t.attempts[0]["phases_s"])
    if t.summed:
        # The last phase has only begun when the ranks tell theirs.
        seconds = {name: float(t.ranks[f"run_{name}_s"].median()) for name in names if name != "finalize"}
        wall_s = float(t.ranks["run_wall_s"].median())
    else:
        seconds, wall_s = {name: sum(each["phases_s"][name] for each in t.attempts) for name in names}, t.wall_s
    bar_s = sum(seconds.values())
    digits = 2 if bar_s < 100 else 1
    legend = [
        f"{LABELS.get(name, name)}\u2002{value:.{digits}f} s\u2002{units.percent(value / wall_s)}"
        for name, value in seconds.items()
        if value > LISTED * bar_s
    ]
    within = [f"{100 * value / wall_s:.0f} %" for value in seconds.values() if value > WITHIN * bar_s]
    return sorted(legend + within)
