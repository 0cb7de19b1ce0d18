"""Entries of rounds as a table, one row each, at full precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcbench.mlperf.entry import Entry
from hpcbench.mlperf.runs_table import printable
from hpcbench.results.not_verified import NOT_VERIFIED

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "origin", "round", "organization", "system", "application", "division", "category", "mode", "ruleset", "runs",
    "pruned", "accelerators", "global_batch_size", "score", "official", "official_crash", "models_per_min",
    "mean_epochs", "reference_epochs", "least_epochs", "unit_of_epochs", "factor", "faults", "notes", "verified",
)  # fmt: skip
"""``origin`` is ``published``, or ``submission`` of a tree that ``hpcbench package`` wrote, whatever its round.

``score`` and ``official`` are in minutes; ``score`` is already normalised by ``factor``, 1 for a throughput.

``unit_of_epochs`` is that of the three columns before it: of OpenFold they count samples. ``verified`` says that scores
are computed here.
"""


def row_of(entry: Entry) -> dict[str, Any]:
    """Return the cells of an entry; a value that it does not have is missing."""
    first, test, official = entry.first, entry.convergence, entry.official
    return {
        "origin": first.origin, "round": first.round, "organization": first.organization, "system": first.system,
        "application": first.application, "division": first.division, "category": first.category, "mode": first.mode,
        "ruleset": entry.ruleset, "runs": len(entry.runs), "pruned": entry.pruned, "accelerators": first.accelerators,
        "global_batch_size": first.global_batch_size, "score": entry.score_min,
        "official": official.minutes if official else None, "official_crash": official.crash if official else None,
        "models_per_min": entry.models_per_min, "mean_epochs": test.mean_epochs if test else None,
        "reference_epochs": test.reference_epochs if test else None,
        "least_epochs": test.least_epochs if test else None, "unit_of_epochs": test.unit if test else None,
        "factor": test.factor if test else None,
        "faults": "; ".join(map(printable, entry.faults)), "notes": "; ".join(map(printable, entry.notes)),
        "verified": NOT_VERIFIED,
    }  # fmt: skip


def entries_frame(entries: Sequence[Entry]) -> pd.DataFrame:
    """Return the table of ``entries``."""
    import pandas as pd

    frame = pd.DataFrame([row_of(entry) for entry in entries], columns=list(COLUMNS))
    return frame.astype({"accelerators": "Int64", "global_batch_size": "Int64"})
