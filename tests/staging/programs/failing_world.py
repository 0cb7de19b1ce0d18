"""Ranks of MPI send buffers around for ever, until one of them fails as the command line says."""

from __future__ import annotations

import os
import signal
import sys
import time

from staging.errors import InputError
from staging.ranks.collective_errors import together, watch
from staging.ranks.mpi_world import mpi_world

how, who = sys.argv[1], int(sys.argv[2])


def fail() -> None:
    # One write, so that lines of several ranks do not mix.
    os.write(1, f"TIME {time.time()}\n".encode())
    if how == "raise":
        raise RuntimeError("the reactor leaks")
    if how == "input":
        raise InputError("the file is cut short")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def check() -> None:
    if how == "together" and place.rank == who:
        fail()
        raise InputError("the folder is not there")


try:
    world = mpi_world()
    place = world.place
    with watch(world):
        os.write(1, f"node {place.node} of {place.nodes}, rank {place.local_rank} of {place.local_size}\n".encode())
        together(world, check)
        sent, received = bytes(1 << 20), bytearray(1 << 20)
        for turn in range(1_000_000):
            world.send_receive(sent, (place.rank + 1) % place.size, received, (place.rank - 1) % place.size)
            if turn == 5 and place.rank == who:
                fail()
            if turn == 9 and how == "nothing":
                break
except InputError as error:
    if error.speaks:
        print(f"program: error: {error}", file=sys.stderr)
    sys.exit(2)
