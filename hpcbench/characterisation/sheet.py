"""A table of a characterisation, for the terminal and for the page."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from hpcbench.results.tables import WIDTH, table

ASSUMED = " (assumed)"
"""Behind what is neither counted nor measured."""


@dataclass(frozen=True)
class Sheet:
    """A table."""

    heading: str
    headers: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    words: int = 1
    """Number of columns from the left that hold words; the others hold numbers."""
    note: str = ""

    def as_text(self) -> str:
        """Plain text within 100 columns."""
        text = f"{self.heading}\n{table(self.headers, self.lines, right=self.headers[self.words :])}"
        return "\n".join([text, *(line for part in self.note.splitlines() for line in textwrap.wrap(part, WIDTH))])
