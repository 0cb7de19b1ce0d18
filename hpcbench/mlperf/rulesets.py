"""Which official rules apply to a log: those of its round."""

from __future__ import annotations

from pathlib import Path

from hpcbench.mlperf.find_logs import round_of
from staging.errors import InputError

ROUNDS = {"v1.0": "1.0.0", "v2.0": "2.0.0", "v3.0": "3.0.0"}
"""The ruleset of each round."""
RULESETS = tuple(ROUNDS.values())
"""The rulesets that ``mlperf_logging`` has for HPC; there is none for v0.7."""
NEWEST = RULESETS[-1]
WITHOUT = "v0.7"
"""The round before the official HPC rulesets."""


def ruleset_of_round(name: str | None) -> str | None:
    """The ruleset of a round such as ``v1.0``; ``None`` for v0.7, and for a round unknown to the official tools."""
    return ROUNDS.get(name or "")


def round_around(path: Path) -> str | None:
    """The round that ``path`` lies in, ``ROUND/ORG`` or ``ROUND/ORG/results/...``, by the name of its folder."""
    parts = path.absolute().parts
    if "results" in parts:
        parts = parts[: len(parts) - 1 - parts[::-1].index("results")]
    return round_of(parts[-2]) if len(parts) > 1 else None


def check_ruleset(ruleset: str) -> str:
    """Return ``ruleset`` itself. Raises ``InputError`` if the official tools have no such HPC rules."""
    if ruleset not in RULESETS:
        raise InputError(f"ruleset {ruleset} is not one of {', '.join(RULESETS)}, for which official HPC rules exist")
    return ruleset
