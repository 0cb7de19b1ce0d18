"""Ranks that meet, of which one, given by its number, ends before; the others print when they are ready to meet."""

from __future__ import annotations

import os
import sys
import time

rank = int(os.environ.get("PMI_RANK", os.environ.get("RANK", "0")))
if rank == int(sys.argv[1]):
    sys.exit(7)

from hpcbench.parallel.group import connect  # noqa: E402
from staging.errors import InputError  # noqa: E402
from staging.ranks.launch import detect  # noqa: E402
from staging.ranks.mpi import start_early  # noqa: E402

# In one write, so that lines of several ranks stay whole.
sys.stdout.write(f"ready {time.monotonic()}\n")
sys.stdout.flush()
try:
    start_early(os.environ)
    connect(detect(os.environ))
except InputError:
    sys.exit(2)
