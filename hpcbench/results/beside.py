"""What a report shows beside runs: results of others in the same columns, what differs, and a plot."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hpcbench.results.plots import Figure
from hpcbench.results.records import Run
from hpcbench.results.tables import WIDTH, table


@dataclass(frozen=True)
class BesideRow:
    """One of your own runs, or a result of others, as text ready to print."""

    is_own: bool
    name: str
    detail: str
    """What distinguishes it from all others: for a published entry, its organization and system."""
    round: str
    """Round and division; for your own runs, the division alone."""
    group: str
    """Heading above the rows of a size class; empty for your own runs."""
    size: str
    """Accelerators; a node without any counts as one."""
    batch: str
    epochs: str
    quality: str
    rate: str
    """Samples per second and accelerator."""
    time: str

    @property
    def text_name(self) -> str:
        """Name and system in a column of text."""
        return self.name if self.is_own else f"{self.name} {self.detail.rpartition('/')[2]}"


@dataclass(frozen=True)
class Beside:
    """Runs of one application and the results beside them."""

    metric: str
    """Name of the quality, as a column shows it."""
    rows: list[BesideRow]
    notes: list[str]
    """What differs, and what may be compared: sentences."""
    figure: Figure | None


FindBeside = Callable[[Mapping[str, Run]], Beside | None]
"""Takes one application's runs by name, and gives what is shown beside them; ``None`` where there is nothing."""


def beside_text(beside: Beside) -> str:
    """Rows and notes as plain text of at most 100 columns."""
    head = ("result", "round", "accel.", "batch", "epochs", beside.metric, "/s each", "time to train")
    rows = [
        [row.text_name, row.round, row.size, row.batch, row.epochs, row.quality, row.rate, row.time]
        for row in beside.rows
    ]  # fmt: skip
    notes = [line for note in beside.notes for line in textwrap.wrap(note, WIDTH)]
    return "\n".join([table(head, rows, head[2:]), "", *notes])
