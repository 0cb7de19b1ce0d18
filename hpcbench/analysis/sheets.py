"""Tables of rows that know their columns: as CSV with all digits, and as cells of a page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any

from hpcbench.results import units

Show = Callable[[Any], str]


def column(heading: str, meaning: str, show: Show = units.significant, page: bool = True) -> Any:
    """A field of a row: its heading on a page, its meaning and unit, how a cell looks, and whether a page shows it."""
    return field(metadata={"heading": heading, "meaning": meaning, "show": show, "page": page})


def text(value: object) -> str:
    """A cell of words."""
    return units.MISSING if value in (None, "") else str(value)


@dataclass(frozen=True)
class Sheet:
    """A table. ``rows`` are dataclasses of one kind, whose fields were made by ``column``."""

    name: str
    """Its file below ``tables``, without the suffix."""
    title: str
    rows: Sequence[Any]
    note: str = ""

    @property
    def columns(self) -> tuple[Field[Any], ...]:
        """The fields of the rows; none where there are no rows."""
        return fields(self.rows[0]) if self.rows else ()

    @property
    def shown(self) -> tuple[Field[Any], ...]:
        """Columns that a page shows: those meant for it that have a value in any row."""
        return tuple(
            row_field for row_field in self.columns
            if row_field.metadata["page"] and any(getattr(row, row_field.name) not in (None, "") for row in self.rows)
        )  # fmt: skip

    @property
    def heads(self) -> list[dict[str, object]]:
        """Heading, meaning and alignment of each column of a page."""
        return [
            {"heading": row_field.metadata["heading"], "meaning": row_field.metadata["meaning"],
             "number": row_field.metadata["show"] is not text} for row_field in self.shown
        ]  # fmt: skip

    @property
    def lines(self) -> list[list[str]]:
        """The cells of a page."""
        return [
            [row_field.metadata["show"](getattr(row, row_field.name)) for row_field in self.shown] for row in self.rows
        ]

    @property
    def as_csv(self) -> str:
        """All columns and digits; what is not known is empty."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([row_field.name for row_field in self.columns])
        for row in self.rows:
            writer.writerow([plain(getattr(row, row_field.name)) for row_field in self.columns])
        return out.getvalue()


def plain(value: object) -> object:
    """A cell of a CSV file."""
    return "" if value is None or (isinstance(value, float) and not math.isfinite(value)) else value
