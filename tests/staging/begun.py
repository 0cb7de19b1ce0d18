"""Stagings that a journal knows of."""

from __future__ import annotations

from collections.abc import Sequence

from staging.ledger.journal import Journal, Start
from staging.ranks.world import Place


def begin(
    journal: Journal, staging: str, place: Place, command: str = "", selection: Sequence[str] | None = None
) -> Start:
    """Write down that this process begins ``staging``."""
    start = Start.of_this_process(staging, place, command, selection)
    journal.start(start)
    return start
