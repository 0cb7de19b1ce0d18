"""``spawned.py RANKS PROGRAM ARGUMENT...``: ranks of a program, started as those of ``--parallel.devices`` are."""

from __future__ import annotations

import os
import sys

from hpcbench.parallel.spawn import rank_environments, run_ranks

ranks, *words = sys.argv[1:]
sys.exit(run_ranks([sys.executable, *words], rank_environments(int(ranks), os.environ)))
