"""``hpcbench``, in which every rank gets SIGUSR1, as a job's warning, after MPI_Init and before it imports PyTorch."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import hpcbench.cli.train
from hpcbench.cli.main import main
from staging.ranks.mpi import uses_mpi

real = hpcbench.cli.train.configured


def configured(*given: Any) -> Any:
    assert uses_mpi(), "MPI_Init comes first, and takes the signal"
    assert "torch" not in sys.modules
    os.kill(os.getpid(), signal.SIGUSR1)
    return real(*given)


if __name__ == "__main__":
    setattr(hpcbench.cli.train, "configured", configured)  # noqa: B010
    sys.exit(main())
