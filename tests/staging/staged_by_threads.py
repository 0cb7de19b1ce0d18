"""Stagings and verifications by threads that stand for ranks on nodes."""

from __future__ import annotations

from pathlib import Path

from staging.options import StageOptions
from staging.report import StagingReport
from staging.stage import stage
from staging.verification import Verification, verify
from tests.staging.thread_world import run_ranks


def stage_all(ranks: list[int], options: StageOptions) -> StagingReport:
    """Stage on threads that stand for ranks on nodes."""
    return run_ranks(ranks, lambda world: stage(options, world, quiet=True))[0]


def verify_all(ranks: list[int], folder: Path) -> Verification:
    """What all ranks find below ``folder/NODE``."""
    found = run_ranks(ranks, lambda world: verify(folder / world.place.node_name, 2, world, quiet=True))
    assert all(other.nodes == found[0].nodes for other in found)
    return found[0]
