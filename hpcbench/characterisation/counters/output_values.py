"""Rows of a table in CSV, none of them cut, and numbers in the output of a tool."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from staging.bounds import shown


def whole_rows(rows: csv.DictReader[str], tool: str) -> Iterator[dict[str, str]]:
    """The rows. Raises ``ValueError`` that names ``tool`` for one with fewer values or more than there are columns."""
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(
                f"row {rows.line_num} of {tool}'s table has not one value for each of {len(rows.fieldnames or ())} "
                "columns, so it was cut or changed; give the output as it was"
            )
        yield row


def number_of(text: str, what: str) -> float:
    """The number. Raises ``ValueError`` that says ``what`` it is."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{what} ({shown(text)}) must be a number; give the output as it was") from None
