"""LSF: ``bsub``, ``bjobs``, ``bkill``."""

from __future__ import annotations

import re

from hpcbench.batch.job import Job
from hpcbench.batch.site import Site
from hpcbench.batch.state import State

PREFIX = "#BSUB"
SHELL = "/bin/bash"
COMMAND = "bsub"
JOB_ID = '"$LSB_JOBID"'
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
WARNS = False


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``bsub``: whole nodes where jobs are launched with jsrun, slots on so many hosts otherwise."""
    minutes = -(-job.time_s // 60)
    lines = [f"-J {job.name}", "-o job-%J.log", f"-W {minutes // 60}:{minutes % 60:02d}"]
    if site.launcher == "jsrun":
        lines.append(f"-nnodes {job.nodes}")
    else:
        slots = job.cores_per_node
        lines += [f"-n {job.nodes * slots}", f'-R "span[ptile={slots}]"']
        if job.gpus_per_node:
            lines.append(f'-gpu "num={job.gpus_per_node}:mode={site.gpu_mode}"')
        if job.memory_gib is not None:
            # Per slot, since that is how LSF counts what it reserves.
            lines.append(f'-R "rusage[mem={-(-job.memory_gib * 1024 // slots)}MB]"')
    lines += [f"-P {job.account}"] if job.account else []
    lines += [f"-q {job.queue}"] if job.queue else []
    lines += [f"-U {job.reservation}"] if job.reservation else []
    lines += [f"-sla {job.qos}"] if job.qos else []
    lines += [f'-R "select[{job.constraint}]"'] if job.constraint else []
    return lines + list(site.directives)


def again() -> list[str]:
    """Shell lines that submit the script once more; the new job waits for the end of this one."""
    return [
        'cd "$run"',
        'HPCBENCH_ATTEMPT=$((attempt + 1)) bsub -w "ended($LSB_JOBID)" < job.sh | tee job-id',
    ]


def submit_command(script: str) -> list[str]:
    """The command that submits, in the folder of the script; every version of LSF takes scripts from its input."""
    return ["bsub"]


READS_INPUT = True


def parse_id(printed: str) -> str:
    """``Job <123> is submitted to queue <normal>.``"""
    match = re.search(r"Job <(\d+)>", printed)
    return match[1] if match else ""


def state_commands(job_id: str) -> list[list[str]]:
    """Jobs that ended lately are known, too."""
    return [["bjobs", "-noheader", "-o", "stat exit_code exit_reason delimiter='|'", job_id]]


STATES: dict[str, State] = {
    "PEND": "waiting", "PROV": "waiting", "WAIT": "waiting", "PSUSP": "waiting", "SSUSP": "waiting", "USUSP": "waiting",
    "RUN": "running", "DONE": "done",
}  # fmt: skip


def parse_state(printed: str) -> tuple[State, str] | None:
    """State and reason from ``bjobs``; LSF tells ends apart in the reason alone."""
    parts = [each.strip() for each in printed.strip().split("|")]
    if parts[0] in STATES:
        return STATES[parts[0]], ""
    if parts[0] != "EXIT" or len(parts) < 3:
        return None
    code, reason = parts[1], parts[2]
    if "TERM_RUNLIMIT" in reason:
        return "time limit", reason
    if "TERM_OWNER" in reason or "TERM_ADMIN" in reason:
        return "cancelled", reason
    return "failed", f"exit code {code}" + (f", {reason}" if reason not in ("", "-") else "")


def cancel_command(job_id: str) -> list[str]:
    """The command that cancels."""
    return ["bkill", job_id]
