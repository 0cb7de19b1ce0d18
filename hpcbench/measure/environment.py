"""What a run ran with: versions, source, host, cores and the launcher's variables. Holds no secrets."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.measure.system import operating_system, software

LAUNCHER_PREFIXES = ("OMPI_COMM_WORLD_", "PMI_", "PMIX_RANK", "MPI_LOCAL", "PALS_", "FLUX_JOB_", "FLUX_TASK_", "OMP_")
LAUNCHER_NAMES = frozenset(
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT "
    "SLURM_JOB_ID SLURM_JOB_PARTITION SLURM_JOB_NUM_NODES SLURM_JOB_NODELIST SLURM_NNODES SLURM_NTASKS SLURM_NPROCS "
    "SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE SLURM_STEP_ID "
    "SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_CPUS_PER_TASK SLURM_CPUS_ON_NODE SLURM_CPU_BIND SLURM_MEM_PER_NODE "
    "SLURM_MEM_PER_CPU SLURM_GPUS_PER_TASK SLURM_GPUS_PER_NODE SLURM_GPUS_ON_NODE SLURM_RESTART_COUNT SLURM_MPI_TYPE "
    "PBS_JOBID PBS_NUM_NODES PBS_NP LSB_JOBID LSB_DJOB_NUMPROC JSM_NAMESPACE_RANK JSM_NAMESPACE_SIZE "
    "MKL_NUM_THREADS OPENBLAS_NUM_THREADS KMP_AFFINITY GOMP_CPU_AFFINITY HPCBENCH_SPAWNED".split()  # noqa: SIM905
)
DEVICE_SUFFIX = "_VISIBLE_DEVICES"
SECRETS = ("KEY", "TOKEN", "SECRET", "PASS", "JWT", "AUTH", "CREDENTIAL", "COOKIE")


def environment_record(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The record that a run keeps as ``environment.json``; ``argv`` is its command line."""
    return {
        "command": list(argv),
        "versions": software(),
        "source": source(),
        "host": platform.node(),
        "platform": platform.platform(),
        "operating_system": operating_system(),
        "python": sys.version.split()[0],
        "cores_allowed": cores_allowed(),
        "launcher": launcher_variables(os.environ if environ is None else environ),
    }


def cores_allowed() -> list[int]:
    """Numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def launcher_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of launchers, schedulers and thread libraries: named ones only, none that may hold a secret."""

    def wanted(name: str) -> bool:
        if any(word in name for word in SECRETS):
            return False
        return name in LAUNCHER_NAMES or name.startswith(LAUNCHER_PREFIXES) or name.endswith(DEVICE_SUFFIX)

    return {name: environ[name] for name in sorted(environ) if wanted(name)}


def source(folder: Path | None = None) -> dict[str, Any]:
    """Git commit of the checkout that hpcbench runs from, and whether it was changed; both null when installed."""
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
