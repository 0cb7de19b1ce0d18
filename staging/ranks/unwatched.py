"""The time before the ranks watch each other, in which a rank that ends can notify no other."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager

from staging.ranks.launch import Launch
from staging.ranks.process_exit import leave
from staging.ranks.signals import Interrupted


@contextmanager
def unwatched(launch: Launch) -> Iterator[None]:
    """Within this context, a rank that a signal ends does not wait for all others in MPI's Finalize."""
    try:
        yield
    except Interrupted as error:
        if launch.world_size > 1:
            error.speaks = launch.rank == 0
            atexit.register(leave, error.exit_code)
        raise
