"""``python -m staging``, in which the rank ``SIGNALLED`` alone is asked to end, before the ranks watch each other."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import staging.ranks.mpi_world
from staging.__main__ import main

real = staging.ranks.mpi_world.simulated


def simulated(world: Any, nodes: int) -> Any:
    if world.place.rank == int(os.environ["SIGNALLED"]):
        os.kill(os.getpid(), signal.SIGTERM)
    return real(world, nodes)


if __name__ == "__main__":
    setattr(staging.ranks.mpi_world, "simulated", simulated)  # noqa: B010
    sys.exit(main())
