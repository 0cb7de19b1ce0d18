"""PBS Pro and OpenPBS: ``qsub``, ``qstat``, ``qdel``."""

from __future__ import annotations

import json

from hpcbench.batch.job import Job
from hpcbench.batch.shell_quoting import clock
from hpcbench.batch.site import Site
from hpcbench.batch.state import State

PREFIX = "#PBS"
SHELL = "/bin/bash -l"  # the job does not get the environment of who submits it
COMMAND = "qsub"
JOB_ID = '"${PBS_JOBID%%.*}"'
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
WARNS = False


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``qsub``: chunks of one node each, on nodes of their own, output and errors in one file."""
    chunk = f"select={job.nodes}"
    if not site.whole_nodes:
        chunk += f":ncpus={job.cores_per_node * site.node.threads_per_core}"
        chunk += f":mpiprocs={job.ranks_per_node}:ompthreads={job.cores_per_rank}"
        chunk += f":ngpus={job.gpus_per_node}" if job.gpus_per_node else ""
    chunk += f":mem={job.memory_gib}gb" if job.memory_gib is not None else ""
    chunk += f":{job.constraint}" if job.constraint else ""
    lines = [f"-N {job.name}", f"-l {chunk}", f"-l walltime={clock(job.time_s)}"]
    lines += ["-l place=scatter:excl" if site.whole_nodes else "-l place=scatter", "-j oe", "-r y"]
    lines += [f"-A {job.account}"] if job.account else []
    # A reservation is a queue of its own.
    queue = job.reservation or job.queue
    lines += [f"-q {queue}"] if queue else []
    lines += [f"-l qos={job.qos}"] if job.qos else []
    return lines + list(site.directives)


def again() -> list[str]:
    """Shell lines that submit the script once more, as a job that waits for the end of this one."""
    return [
        'cd "$run"',
        'qsub -v HPCBENCH_ATTEMPT=$((attempt + 1)) -W depend=afterany:"$PBS_JOBID" job.sh | tee job-id',
    ]


def submit_command(script: str) -> list[str]:
    """The command that submits, in the folder of the script."""
    return ["qsub", script]


def parse_id(printed: str) -> str:
    """``123.server``, as it is."""
    return printed.strip().splitlines()[-1].strip()


def state_commands(job_id: str) -> list[list[str]]:
    """Ended jobs are asked for, too."""
    return [["qstat", "-x", "-f", "-F", "json", job_id]]


STATES: dict[str, State] = {
    "Q": "waiting", "H": "waiting", "W": "waiting", "T": "waiting", "M": "waiting", "S": "waiting", "U": "waiting",
    "B": "running", "R": "running", "E": "running",
}  # fmt: skip
CANCELLED, OVER_TIME = 271, -29
"""Exit codes of PBS: 256 + SIGTERM, and a job that was killed over its time limit (JOB_EXEC_KILL_WALLTIME)."""


def parse_state(printed: str) -> tuple[State, str] | None:
    """State and reason from ``qstat``."""
    try:
        jobs = json.loads(printed).get("Jobs") or {}
    except (json.JSONDecodeError, AttributeError):
        return None
    for found in jobs.values():
        letter, code = found.get("job_state", ""), found.get("Exit_status")
        if letter in STATES:
            return STATES[letter], str(found.get("comment", "")) if STATES[letter] == "waiting" else ""
        if letter in ("F", "X"):
            if code is None:
                return "cancelled", "before it ran"
            ends: dict[int, State] = {0: "done", CANCELLED: "cancelled", OVER_TIME: "time limit"}
            return ends.get(int(code), "failed"), "" if code == 0 else f"exit code {code}"
    return None


def cancel_command(job_id: str) -> list[str]:
    """The command that cancels."""
    return ["qdel", job_id]
