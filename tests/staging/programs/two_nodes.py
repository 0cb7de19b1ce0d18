"""Stages shards to two nodes, whose ranks are threads, or re-shuffles them: ``stage|reshuffle SRC DST SHUFFLE``."""

from __future__ import annotations

import sys
from pathlib import Path

from staging.options import StageOptions
from staging.reshuffle import reshuffle
from staging.stage import stage
from tests.staging.thread_world import ThreadWorld, run_ranks


def main(what: str, source: str, destination: str, shuffle: int) -> None:
    """Do ``what`` on both nodes."""
    options = StageOptions(Path(source), destination, "shard", threads=1, shuffle=shuffle if what == "stage" else 0)

    def work(world: ThreadWorld) -> None:
        if what == "stage":
            stage(options, world, quiet=True)
        else:
            reshuffle(options, shuffle, world)

    run_ranks([1, 1], work)


main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
