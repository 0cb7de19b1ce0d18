"""The schedulers by name: modules with the same functions and constants each.

``PREFIX`` of a line for the scheduler, ``SHELL`` of the script, ``COMMAND`` that a machine with it has, ``JOB_ID`` and
``ATTEMPT`` as the shell reads them, ``WARNS``: whether it sends the signal before the time limit. ``directives(job,
site)`` and ``again()`` are lines of a script; ``submit_command(script)``, ``state_commands(job_id)`` and
``cancel_command(job_id)`` are commands, and ``parse_id(printed)`` and ``parse_state(printed)`` read what they print.
"""

from __future__ import annotations

from types import ModuleType

from hpcbench.batch import flux, local, lsf, pbs, slurm

SCHEDULERS: dict[str, ModuleType] = {"slurm": slurm, "pbs": pbs, "lsf": lsf, "flux": flux, "local": local}
