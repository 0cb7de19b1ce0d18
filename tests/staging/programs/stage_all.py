"""Ranks of MPI stage every source of a folder on every placement and path over some numbers of simulated nodes.

The first rank prints a JSON object for each staging: what was asked, and the bytes that all ranks together read while
data moved, as the operating system counts them.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import product
from pathlib import Path

import staging.stage
from staging.options import StageOptions
from staging.ranks.collective_errors import watch
from staging.ranks.mpi_world import mpi_world, simulated
from staging.stage import Staging
from staging.timeline import Landings
from tests.staging.made_sources import EXCLUSIONS, TRANSFORMS

PIECE = 10_000


class CountingStaging(Staging):
    """Counts what this process reads while it moves data, whoever of its threads and libraries does."""

    bytes_counted = 0

    def move(self, landings: Landings) -> None:
        """Move, between two looks at the system's counter; the first look is itself counted by the second."""
        before, length = rchar()
        super().move(landings)
        CountingStaging.bytes_counted = rchar()[0] - before - length


def rchar() -> tuple[int, int]:
    """Bytes that this process has read until now, and the bytes that this look takes."""
    descriptor = os.open("/proc/self/io", os.O_RDONLY)
    try:
        text = os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
    return int(text.split()[1]), len(text)


def main(sources: Path, out: Path, numbers: list[int]) -> None:
    """Stage all."""
    staging.stage.Staging = CountingStaging  # type: ignore[misc]
    launched = mpi_world()
    with watch(launched):
        for nodes in numbers:
            world = simulated(launched, nodes)
            for name, placement, path in product(TRANSFORMS, ("replicate", "shard"), ("direct", "exchange")):
                folder = out / f"{nodes}-{name}-{placement}-{path}"
                options = StageOptions(
                    sources / name, f"{folder}/{{node}}", placement, path, TRANSFORMS[name],
                    plain=EXCLUSIONS.get(name, ()), piece_bytes=PIECE,
                )  # type: ignore[arg-type]  # fmt: skip
                report = staging.stage.stage(options, world, quiet=True)
                asked = {"nodes": nodes, "source": name, "placement": placement, "path": path, "folder": str(folder)}
                counted = world.all_gather(CountingStaging.bytes_counted)
                if world.place.rank == 0:
                    print(json.dumps(asked | {"rchar": counted, "bytes_read": report.totals.bytes_read}), flush=True)


main(Path(sys.argv[1]), Path(sys.argv[2]), [int(number) for number in sys.argv[3:]])
