"""The environment of a scheduler's commands, without variables that would make a job another one than its script says.

``sbatch`` hands on the environment of whoever submits, and takes variables ``SBATCH_*`` before the script's own lines.
So a job that is submitted within another one would get that one's ``SLURM_*``, which ``srun`` takes for options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

READABLE = {"SLURM_TIME_FORMAT": "standard"}
"""So that the commands print times as they are read here."""
ATTEMPT_VARIABLES = ("HPCBENCH_ATTEMPT", "HPCBENCH_MARK")
"""What the script of an attempt gives to the next one."""
JOB_PREFIXES = ("SLURM_", "PMI_", "PMIX_", "OMPI_", "HYDRA_", "MPI_LOCAL")
"""Beginnings of the names that Slurm and launchers set within a job."""
KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT", "SLURM_MPI_TYPE")
"""Variables that people and sites set, within a job, too."""
DIRECTIVE = re.compile(r"^#SBATCH --([a-z-]+)", re.MULTILINE)
VARIABLES_OF_OPTION = {
    "time": ("TIMELIMIT",), "mem": ("MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU"), "requeue": ("NO_REQUEUE",),
    "gpus-per-node": ("GPUS_PER_NODE", "GPUS"),
}  # fmt: skip
"""What ``SBATCH_*`` calls an option, unless it is the option's own name, and what contradicts it."""
ALWAYS_DROPPED = ("SBATCH_WAIT", "SBATCH_ARRAY_INX")
"""With these, ``sbatch`` does not end before the job, or submits several."""
FILTER_PREFIXES = ("SQUEUE_", "SACCT_")
"""Beginnings of variables with which ``squeue`` and ``sacct`` leave out jobs, which would count as forgotten."""


def command_environment(environ: Mapping[str, str], script: str = "") -> dict[str, str]:
    """The environment of a scheduler's command that submits ``script``, or asks or cancels if there is none."""
    dropped = {*ATTEMPT_VARIABLES, *ALWAYS_DROPPED, *(name for name in environ if name.startswith(FILTER_PREFIXES))}
    if "SLURM_JOB_ID" in environ:
        dropped |= {name for name in environ if name.startswith(JOB_PREFIXES)} - set(KEPT)
    for option in DIRECTIVE.findall(script):
        names = VARIABLES_OF_OPTION.get(option, (option.replace("-", "_").upper(),))
        dropped |= {f"SBATCH_{name}" for name in names}
    return {name: value for name, value in environ.items() if name not in dropped} | READABLE
