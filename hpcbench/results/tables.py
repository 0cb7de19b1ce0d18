"""Plain text tables that fit 100 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hpcbench.phase_names import PHASES
from hpcbench.results import units
from staging.one_line import one_line

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 100
GAP = "  "
NARROWEST = 6


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = (), width: int = WIDTH) -> str:
    """``rows`` under ``headers`` with a rule between; columns named in ``right`` are right-aligned.

    No line is longer than ``width``: where the cells need more, the widest columns are cut, with ``..`` at the end.
    Line breaks and control characters in cells, which a terminal would obey, are shown as text.
    """
    lines = [list(headers), *[[one_line(text) for text in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headers))]
    while sum(widths) + len(GAP) * (len(widths) - 1) > width and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1

    def cell(text: str, column: int) -> str:
        limit = widths[column]
        cut = text if len(text) <= limit else text[: limit - 2] + ".."
        return cut.rjust(limit) if headers[column] in right else cut.ljust(limit)

    ruled = [GAP.join(cell(text, column) for column, text in enumerate(line)).rstrip() for line in lines]
    return "\n".join([ruled[0], GAP.join("-" * limit for limit in widths), *ruled[1:]])


def tables_by(
    by: Sequence[str], rows: Sequence[Mapping[str, str]], right: Sequence[str] = (), optional: Sequence[str] = ()
) -> str:
    """A table for each combination of values of the columns ``by``, below these values instead of with them.

    ``rows`` map headers to cells, all with the same headers. A table has those columns ``optional`` that have a value.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    tables = []
    for values, group in groups.items():
        empty = {name for name in optional if all(row[name] == units.MISSING for row in group)}
        headers = [name for name in group[0] if name not in by and name not in empty]
        cells = [[row[name] for name in headers] for row in group]
        tables.append(f"{one_line(', '.join(values))}\n{table(headers, cells, right)}")
    return "\n\n".join(tables)


def wrapped(text: str, indent: int = 2) -> str:
    """``text`` as lines of at most ``WIDTH`` columns, all but the first indented. Options and paths stay whole."""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip


def missing(value: object) -> bool:
    """Whether a cell of a frame has no value. ``None`` needs no import of pandas: ``status`` has no frame."""
    if value is None:
        return True
    import pandas as pd

    return bool(pd.isna(value))  # type: ignore[call-overload]


def verdict(status: str, target: float | None) -> str:
    """Whether the target was reached: ``yes``, ``no``, ``aborted``, or ``-`` for a run that had none."""
    if status != "aborted" and missing(target):
        return units.MISSING
    return {"success": "yes", "target_not_reached": "no"}.get(status, status)


def _text(value: object) -> str:
    return units.MISSING if missing(value) else str(value)


def _target(row: pd.Series) -> str:
    if missing(row.get("target")):
        return units.MISSING
    return ("<= " if row["better"] == "lower" else ">= ") + units.score(row["target"])


def _baseline(row: pd.Series) -> str:
    if missing(row.get("baseline_quality")):
        return units.MISSING
    return f"{units.score(row['baseline_quality'])} {str(row['baseline']).replace('_', ' ')}"


def runs_table(frame: pd.DataFrame) -> str:
    """One line per record of ``load_runs``: what ran, whether it reached its target, how fast, and how well beside
    the strongest baseline."""
    headers = ["application", "preset", "seed", "target", "reached", "epochs", "time", "samples/s", "quality"]
    headers.append("best baseline")
    rows = [
        [
            _text(row["application"]),
            _text(row["preset"]),
            _text(row["seed"]),
            _target(row),
            verdict(str(row["status"]), row.get("target")),
            _text(row["epochs"]) if missing(row["epochs"]) else f"{row['epochs']:.7g}",
            units.duration(row.get("time_to_solution_s")),
            units.significant(row.get("samples_per_s")),
            units.score(row["quality"]),
            _baseline(row),
        ]
        for _, row in frame.iterrows()
    ]
    return table(headers, rows, right=("seed", "epochs", "time", "samples/s", "quality"))


def phases_table(frame: pd.DataFrame) -> str:
    """Seconds of each phase, one line per record; columns with all values below 1 ms are left out."""
    columns = [name for phase in PHASES if (name := f"phase_{phase}_s") in frame and frame[name].max() >= 1e-3]
    names = [name[len("phase_") : -len("_s")].replace("_", " ") for name in columns]
    rows = [
        [_text(row["application"]), units.significant(row.get("wall_s"))]
        + [units.MISSING if missing(row[name]) else units.significant(row[name]) for name in columns]
        for _, row in frame.iterrows()
    ]
    return table(["application", "wall s", *names], rows, right=("wall s", *names))
