"""Slurm: ``sbatch``, ``squeue``, ``sacct``, ``scancel``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from datetime import datetime

from hpcbench.batch.job import Job
from hpcbench.batch.scheduler import Ask, JobState, JobStatus, Known, Reply, Starts, UnreachableError, lines_of
from hpcbench.batch.shell_quoting import clock
from hpcbench.batch.site import Site

TITLE = "Slurm"
PREFIX = "#SBATCH"
SHELL = "/bin/bash"
COMMAND = "sbatch"
JOB_ID = '"$SLURM_JOB_ID"'
JOB_VARIABLE = "SLURM_JOB_ID"
ATTEMPT = "$((${SLURM_RESTART_COUNT:-0} + 1))"
KEEPS_ID = True
WARNS = True
READS_INPUT = False


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``sbatch``. The signal goes to the ranks, not to the script; only ranks of ``srun`` get it."""
    lines = [
        f"--job-name={job.mark}", f"--comment={job.mark}", "--output=job-%j.log", "--open-mode=append",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.ranks_per_node}", f"--cpus-per-task={job.cores_per_rank * site.node.threads_per_core}",
        f"--time={clock(job.time_s)}", *([f"--signal=USR1@{job.warn_s}"] if site.launcher == "srun" else []),
        "--requeue",
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


def resubmit_lines() -> list[str]:
    """Shell lines that start the job once more; it keeps its number."""
    return ['scontrol requeue "$SLURM_JOB_ID" || return', "sleep 60 || true  # until Slurm ends this attempt"]


def submit_command(script: str, mark: str) -> list[str]:
    """See ``Scheduler``; the script carries the mark."""
    return ["sbatch", "--parsable", script]


def parse_id(printed: str) -> str:
    """The number of the job: ``123`` or ``123;cluster``."""
    last = (printed.strip().splitlines() or [""])[-1].split(";")[0]
    return last if last.isdigit() else ""


UNHEARD = re.compile(
    r"timed out|unable to contact|zero bytes|not respond|try again|broken pipe|message (receive|send)|end of file|"
    r"(to|cannot|not) connect|connect failure|connection (failure|refused|reset|closed|aborted)|persistent connection|"
    r"communications? (\w+ )?(failure|error)|(to|cannot|not) communicate|in standby mode|"
    r"backup in standby|temporarily un(able|available)|insane message",
    re.IGNORECASE,
)
"""In the errors of commands that did not reach the controller, or whose answer was lost.

Phrases of Slurm, never a single word: a refusal may name a partition ``standby`` or a feature ``interconnect``.
"""
REFUSED = re.compile(r"^sbatch: (error|fatal):", re.MULTILINE)
"""``fatal``: options that contradict each other, before the controller is asked."""


def is_refusal(reply: Reply) -> bool:
    """``sbatch`` ends with 1 and says why; it does the same for a lost message, after which the job may be queued."""
    return reply.has_failed and REFUSED.search(reply.errors) is not None and UNHEARD.search(reply.errors) is None


STATES: dict[str, JobState] = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD"), "waiting"),
    **dict.fromkeys(("SPECIAL_EXIT", "SUSPENDED", "EXPEDITING", "POWER_UP_NODE"), "waiting"),
    **dict.fromkeys(("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING", "UPDATE_DB"), "running"),
    **dict.fromkeys(("FAILED", "BOOT_FAIL", "NODE_FAIL", "OUT_OF_MEMORY", "REVOKED"), "failed"),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), "time limit"),
    "COMPLETED": "done", "CANCELLED": "cancelled", "PREEMPTED": "preempted",
}  # fmt: skip
UNKNOWN_ID = "Invalid job id specified"
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|accounting_storage/none", re.IGNORECASE)


def query(job_ids: Sequence[str], ask: Ask) -> Known:
    """From the queue, which keeps jobs for some minutes after their end, and from the accounting.

    ``squeue`` leaves out an unknown id among several, and ends with 1 for one alone.
    """
    command = ["squeue", "--noheader", "--states=all", "--format=%i|%T|%r", f"--jobs={','.join(job_ids)}"]
    reply = ask(command)
    if reply.exit_code != 0 and UNKNOWN_ID not in reply.errors:
        raise UnreachableError(f"squeue: {reply.words}")
    known = parse(reply, "squeue")
    left = [job_id for job_id in job_ids if job_id not in known]
    return known | accounted(left, ask) if left else known


def accounted(job_ids: Sequence[str], ask: Ask) -> Known:
    """What the accounting knows about jobs that the queue has forgotten; empty if the machine has no accounting."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode"]
    try:
        reply = ask([*command, f"--jobs={','.join(job_ids)}"])
    except UnreachableError:
        return {}
    if reply.exit_code == 0:
        return parse(reply, "sacct")
    if NO_ACCOUNTING.search(reply.errors):
        return {}
    raise UnreachableError(f"sacct: {reply.words}")


def parse(reply: Reply, source: str) -> Known:
    """Lines of ``squeue`` (``17|PENDING|Resources``) and of ``sacct`` (``17|CANCELLED by 1000|0:15``)."""
    known: Known = {}
    for parts in lines_of(reply):
        word = re.match(r"[A-Z_]*", parts[1])[0] if len(parts) > 2 else ""  # type: ignore[index]
        if word in STATES:
            reason = "" if parts[2] in ("None", "0:0") else parts[2]
            known[parts[0]] = JobStatus(STATES[word], reason, source)
        elif len(parts) > 2:  # a state of another version of Slurm, which has not forgotten the job
            known[parts[0]] = JobStatus("unknown", f"{source} says {parts[1]}", source)
    return known


def find(mark: str, ask: Ask) -> list[str]:
    """By the name and the comment of jobs in the queue, since some sites use one of them for themselves."""
    reply = ask(["squeue", "--noheader", "--me", "--states=all", "--sort=i", "--format=%i|%j|%k"])
    if reply.exit_code != 0:
        raise UnreachableError(f"squeue: {reply.words}")
    return [parts[0] for parts in lines_of(reply) if mark in parts[1:]]


def elapsed_s(job_id: str, ask: Ask) -> Starts:
    """From the accounting, which knows each start of a job that was requeued."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={job_id}"]
    reply = ask([*command, "--format=Start,ElapsedRaw"])
    starts: Starts = []
    for parts in lines_of(reply) if reply.exit_code == 0 else []:
        if len(parts) == 2 and parts[1].isdecimal() and "T" in parts[0]:
            with contextlib.suppress(ValueError):  # another format than the standard one
                starts.append((datetime.fromisoformat(parts[0]).timestamp(), float(parts[1])))
    return starts


def cancel_command(job_id: str) -> list[str]:
    """See ``Scheduler``."""
    return ["scancel", job_id]
