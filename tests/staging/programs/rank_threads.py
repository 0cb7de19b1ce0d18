"""Stages or re-shuffles, as a scenario says, by ranks that are threads: ``SCENARIO stage|reshuffle PLACE ROOT``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.staging.crashes.scenarios import SCENARIOS


def main(name: str, what: str, place: str, root: str) -> None:
    """Do ``what`` on all nodes of a scenario."""
    scenario = next(each for each in SCENARIOS if each.name == name)
    getattr(scenario, what)(Path(place), root)


main(*sys.argv[1:])
