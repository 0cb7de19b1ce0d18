"""``killed_at_finalize.py RANK -m MODULE ARGUMENT...``: a module's command under MPI, of which one rank never parts.

It is killed when it is about to call MPI's Finalize, in which the others wait for it by then.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time

import staging.ranks.process_exit
from staging.ranks.launch import detect
from staging.ranks.mpi import finalize_mpi

OTHERS_WAIT_S = 1.0


def killed() -> None:
    """In the place of Finalize."""
    time.sleep(OTHERS_WAIT_S)
    os.kill(os.getpid(), signal.SIGKILL)


rank = int(sys.argv[1])
staging.ranks.process_exit.finalize_mpi = killed if detect(os.environ).rank == rank else finalize_mpi
sys.argv = sys.argv[3:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
