"""Slurm: ``sbatch``, ``squeue``, ``sacct``, ``scontrol``."""

from __future__ import annotations

import re

from hpcbench.batch.job import Job
from hpcbench.batch.shell_quoting import clock
from hpcbench.batch.site import Site
from hpcbench.batch.state import State

PREFIX = "#SBATCH"
SHELL = "/bin/bash"
COMMAND = "sbatch"
JOB_ID = '"$SLURM_JOB_ID"'
ATTEMPT = "$((${SLURM_RESTART_COUNT:-0} + 1))"
WARNS = True
"""Whether the scheduler itself sends the signal before the time limit."""


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``sbatch``. The signal goes to the ranks and not to the script."""
    lines = [
        f"--job-name={job.name}", "--output=job-%j.log", "--open-mode=append", f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.ranks_per_node}", f"--cpus-per-task={job.cores_per_rank * site.node.threads_per_core}",
        f"--time={clock(job.time_s)}", f"--signal=USR1@{job.warn_s}", "--requeue",
    ]  # fmt: skip
    if site.whole_nodes:
        lines.append("--exclusive")
    if job.memory_gib is not None:
        lines.append(f"--mem={job.memory_gib}G")
    if job.gpus_per_node and site.gpu_request == "gpus-per-node":
        lines.append(f"--gpus-per-node={job.gpus_per_node}")
    if job.gpus_per_node and site.gpu_request == "gres":
        lines.append(f"--gres=gpu:{job.gpus_per_node}")
    if job.gpus_per_node and site.gpu_request == "gpus-per-task":
        lines.append(f"--gpus-per-task={job.gpus_per_rank}")
    named = {"account": job.account, "partition": job.queue, "qos": job.qos, "constraint": job.constraint,
             "reservation": job.reservation}  # fmt: skip
    return lines + [f"--{option}={value}" for option, value in named.items() if value] + list(site.directives)


def again() -> list[str]:
    """Shell lines that start the job once more; it keeps its number."""
    return ['scontrol requeue "$SLURM_JOB_ID"', "sleep 60  # until Slurm ends this attempt"]


def submit_command(script: str) -> list[str]:
    """The command that submits, in the folder of the script."""
    return ["sbatch", "--parsable", script]


def parse_id(printed: str) -> str:
    """The number of the job: ``123`` or ``123;cluster``."""
    return printed.strip().splitlines()[-1].split(";")[0]


def state_commands(job_id: str) -> list[list[str]]:
    """What to ask in turn, until one answers: queue, accounting, and the controller's memory of the last minutes."""
    return [
        ["squeue", "--noheader", f"--jobs={job_id}", "--states=all", "--format=%T %r"],
        ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job_id}", "--format=State,ExitCode"],
        ["scontrol", "show", "job", job_id],
    ]


STATES: dict[str, State] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"), "waiting"),
    **dict.fromkeys(("SPECIAL_EXIT", "SUSPENDED"), "waiting"),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING"), "running"),
    **dict.fromkeys(("FAILED", "BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED"), "failed"),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), "time limit"),
    "COMPLETED": "done", "CANCELLED": "cancelled", "PREEMPTED": "preempted",
}  # fmt: skip
CONTROLLER = re.compile(r"JobState=(\S+) Reason=(\S+)")
QUEUE = re.compile(r"\s*([A-Z_]+)[^\s|]*(?:[^|\n]*\||\s+)(.*)")
"""Of ``squeue`` (``PENDING Resources``) and of ``sacct`` (``CANCELLED by 0|0:0``)."""


def parse_state(printed: str) -> tuple[State, str] | None:
    """State and reason from the answer of any of ``state_commands``; ``None`` where it says nothing."""
    match = CONTROLLER.search(printed) or QUEUE.match(printed)
    if match is None or match[1] not in STATES:
        return None
    reason = match[2].strip()
    return STATES[match[1]], "" if reason in ("None", "0:0") else reason


def cancel_command(job_id: str) -> list[str]:
    """The command that cancels."""
    return ["scancel", job_id]
