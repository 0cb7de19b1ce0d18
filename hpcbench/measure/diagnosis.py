"""What ``hpcbench doctor`` finds, as rows below headings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

State = Literal["ok", "note", "broken"]
"""``note``: something optional is absent, or something is worth knowing. ``broken``: the requested run cannot work."""


@dataclass(frozen=True)
class Row:
    """One thing that was checked."""

    name: str
    value: str
    state: State = "ok"


@dataclass(frozen=True)
class Need:
    """Something that a user may want to do, whether it works here, and what it lacks."""

    purpose: str
    works: bool
    missing: str = ""
    required: bool = False


@dataclass
class Diagnosis:
    """All findings, by heading."""

    sections: dict[str, list[Row]] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything that a run needs, or that was requested, works."""
        rows = [row for section in self.sections.values() for row in section]
        broken = any(row.state == "broken" for row in rows)
        return not broken and all(need.works for need in self.needs if need.required)


def gib(size: int) -> str:
    """Format a size in bytes as GiB."""
    return f"{size / 2**30:.1f} GiB"
