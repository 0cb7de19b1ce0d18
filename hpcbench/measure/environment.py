"""The environment of a run: versions, source, host, cores and the launcher's variables. Holds no secrets."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.measure.installation import installation
from hpcbench.measure.system import operating_system, software
from staging.cores import cores_allowed

LAUNCHER_PREFIXES = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_RANK", "MPI_LOCAL", "PALS_", "FLUX_JOB_", "FLUX_TASK_", "OMP_")
LAUNCHER_FAMILIES = {
    "": "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT HPCBENCH_SPAWNED",
    "SLURM_": "JOB_PARTITION JOB_NUM_NODES JOB_NODELIST NNODES NTASKS NPROCS NTASKS_PER_NODE TASKS_PER_NODE "
    "STEP_ID STEP_NUM_TASKS STEP_TASKS_PER_NODE PROCID LOCALID NODEID CPUS_PER_TASK CPUS_ON_NODE CPU_BIND MEM_PER_NODE "
    "MEM_PER_CPU GPUS_PER_TASK GPUS_PER_NODE GPUS_ON_NODE RESTART_COUNT MPI_TYPE",
    "PBS_": "NUM_NODES NP",
    "LSB_": "DJOB_NUMPROC",
    "JSM_NAMESPACE_": "RANK SIZE",
    "MKL_": "NUM_THREADS",
    "OPENBLAS_": "NUM_THREADS",
    "KMP_": "AFFINITY",
    "GOMP_": "CPU_AFFINITY",
}
"""Names of variables by prefix; of Slurm's only some are listed, since others hold a user's name, paths or a token."""
LAUNCHER_NAMES = {prefix + name for prefix, names in LAUNCHER_FAMILIES.items() for name in names.split()}
DEVICE_SUFFIX = "_VISIBLE_DEVICES"
SECRETS = ("KEY", "TOKEN", "SECRET", "PASS", "JWT", "AUTH", "CREDENTIAL", "COOKIE")


def environment_record(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the record that a run keeps as ``environment.json``; ``argv`` is its command line."""
    return {
        "command": list(argv),
        "versions": software(),
        "source": source(),
        "installation": installation(),
        "host": platform.node(),
        "platform": platform.platform(),
        "operating_system": operating_system(),
        "python": sys.version.split()[0],
        "cores_allowed": cores_allowed(),
        "launcher": launcher_variables(os.environ if environ is None else environ),
    }


def launcher_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables of launchers, schedulers and thread libraries: named ones only, none that may hold a secret."""

    from hpcbench.batch.schedulers import usable_schedulers  # only the rank that writes the record needs them

    names = LAUNCHER_NAMES | {scheduler.JOB_VARIABLE for scheduler in usable_schedulers()}

    def wanted(name: str) -> bool:
        if any(word in name for word in SECRETS):
            return False
        return name in names or name.startswith(LAUNCHER_PREFIXES) or name.endswith(DEVICE_SUFFIX)

    return {name: environ[name] for name in sorted(environ) if wanted(name)}


def source(folder: Path | None = None) -> dict[str, Any]:
    """Return the checkout's Git commit, and whether it was changed; both null if hpcbench runs from an installation."""
    folder = folder or Path(__file__).resolve().parents[2]
    unknown: dict[str, Any] = {"commit": None, "dirty": None}
    if not (folder / ".git").exists():
        return unknown
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return unknown if commit is None or changes is None else {"commit": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
