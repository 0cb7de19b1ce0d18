"""The schedulers by name."""

from __future__ import annotations

from hpcbench.batch import flux, local, lsf, pbs, slurm
from hpcbench.batch.scheduler import Scheduler

SCHEDULERS: dict[str, Scheduler] = {"slurm": slurm, "pbs": pbs, "lsf": lsf, "flux": flux, "local": local}
