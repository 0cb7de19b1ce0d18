"""The plan of a gains study as text: its options and their runs, and what is not measured. Draws nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hpcbench.results.tables import WIDTH, table


def plan_table(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """The options of a plan: what each sets, and its runs."""
    return table(["option", "name", "sets", "runs"], rows, right=("runs",))


def missing_text(missing: Sequence[tuple[str, str]]) -> str:
    """What was not measured, and why; empty if everything was."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing:
        by_reason.setdefault(reason, []).append(name)
    lines = wrapped([f"{'; '.join(names)}: {reason}" for reason, names in by_reason.items()])
    return "\n".join(["Not measured", *lines]) if lines else ""


def wrapped(lines: Sequence[str]) -> list[str]:
    """Each sentence in lines of at most 100 columns."""
    return [part for line in lines for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ")]
