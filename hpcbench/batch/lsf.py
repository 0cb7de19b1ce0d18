"""LSF: ``bsub``, ``bjobs``, ``bkill``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcbench.batch.job import Job
from hpcbench.batch.scheduler import Ask, JobState, JobStatus, Known, Reply, Starts, UnreachableError, lines_of
from hpcbench.batch.site import Site

TITLE = "LSF"
PREFIX = "#BSUB"
SHELL = "/bin/bash"
COMMAND = "bsub"
JOB_ID = '"$LSB_JOBID"'
JOB_VARIABLE = "LSB_JOBID"
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
KEEPS_ID = False
WARNS = False
READS_INPUT = True
"""Every version of LSF takes scripts from its input."""


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``bsub``: whole nodes if jobs are launched with jsrun, otherwise slots on that many hosts."""
    minutes = -(-job.time_s // 60)
    lines = [f"-J {job.name}", f"-Jd {job.mark}", "-o job-%J.log", f"-W {minutes // 60}:{minutes % 60:02d}"]
    if site.launcher == "jsrun":
        lines.append(f"-nnodes {job.nodes}")
    else:
        slots = job.cores_per_node
        lines += [f"-n {job.nodes * slots}", f'-R "span[ptile={slots}]"']
        if job.gpus_per_node:
            lines.append(f'-gpu "num={job.gpus_per_node}:mode={site.gpu_mode}"')
        if job.memory_gib is not None:
            # Per slot, since LSF counts reservations per slot.
            lines.append(f'-R "rusage[mem={-(-job.memory_gib * 1024 // slots)}MB]"')
    lines += [f"-P {job.account}"] if job.account else []
    lines += [f"-q {job.queue}"] if job.queue else []
    lines += [f"-U {job.reservation}"] if job.reservation else []
    lines += [f"-sla {job.qos}"] if job.qos else []
    lines += [f'-R "select[{job.constraint}]"'] if job.constraint else []
    return lines + list(site.directives)


def resubmit_lines() -> list[str]:
    """Shell lines that submit the script once more; the new job waits for the end of this one."""
    return [
        'cd "$run" || return',
        'HPCBENCH_ATTEMPT=$((attempt + 1)) bsub -w "ended($LSB_JOBID)" < job.sh | tee "$hold.next"',
    ]


def submit_command(script: str, mark: str) -> list[str]:
    """See ``Scheduler``; the script carries the mark."""
    return ["bsub"]


def parse_id(printed: str) -> str:
    """``Job <123> is submitted to queue <normal>.``"""
    match = re.search(r"Job <(\d+)>", printed)
    return match[1] if match else printed.strip() if printed.strip().isdigit() else ""


UNHEARD = re.compile(
    r"not respond|timed out|timeout on|(communication|connection) (failure|error|refused|reset|closed|time ?out)|"
    r"daemon (internal error|cannot)|(LSF|LIM|mbatchd|sbatchd|daemon) is (down|not|busy)|try (again|later)|"
    r"failed in (sending|receiving)",
    re.IGNORECASE,
)
"""In the messages of commands that did not reach LSF, or whose answer was lost: phrases, since a refusal may name a
queue ``interconnect``.
"""


def is_refusal(reply: Reply) -> bool:
    """``bsub`` ends with 255 and says "Job not submitted."."""
    said = reply.errors + reply.printed
    return reply.has_failed and "not submitted" in said and UNHEARD.search(said) is None


STATES: dict[str, JobState] = {
    "PEND": "waiting", "PROV": "waiting", "WAIT": "waiting", "PSUSP": "waiting", "SSUSP": "waiting", "USUSP": "waiting",
    "RUN": "running", "DONE": "done",
}  # fmt: skip
UNKNOWN_ID = re.compile(r"Job <(\d+)> is not found")


def query(job_ids: Sequence[str], ask: Ask) -> Known:
    """From ``bjobs``, which includes recently ended jobs. It names ids that it does not know, and ends with 255."""
    reply = ask(["bjobs", "-noheader", "-o", "jobid stat exit_code exit_reason delimiter='|'", *job_ids])
    named = set(UNKNOWN_ID.findall(reply.errors + reply.printed))
    known = {parts[0]: job_status for parts in lines_of(reply) if (job_status := status(parts)) is not None}
    silent = [job_id for job_id in job_ids if job_id not in known and job_id not in named]
    if silent:
        raise UnreachableError(f"bjobs: {reply.words[:200]}")
    return {job_id: known[job_id] for job_id in job_ids if job_id in known}


def status(parts: Sequence[str]) -> JobStatus | None:
    """The status in one line, ``None`` for another line; only the reason tells how an LSF job ended."""
    if len(parts) > 1 and parts[1] in STATES:
        return JobStatus(STATES[parts[1]], "", "bjobs")
    if len(parts) < 4 or not parts[0].isdigit():
        return None
    if parts[1] != "EXIT":
        lost = ", since LSF cannot reach its node" if parts[1] in ("UNKWN", "ZOMBI") else ""
        return JobStatus("unknown", f"bjobs says {parts[1]}{lost}", "bjobs")
    code, reason = parts[2], parts[3]
    if "TERM_RUNLIMIT" in reason:
        return JobStatus("time limit", reason, "bjobs")
    if "TERM_OWNER" in reason or "TERM_ADMIN" in reason:
        return JobStatus("cancelled", reason, "bjobs")
    return JobStatus("failed", f"exit code {code}" + (f", {reason}" if reason not in ("", "-") else ""), "bjobs")


def find(mark: str, ask: Ask) -> list[str]:
    """By job description, ended jobs included."""
    reply = ask(["bjobs", "-a", "-noheader", "-o", "jobid job_description delimiter='|'"])
    if reply.exit_code != 0 and "No job found" not in reply.errors + reply.printed:
        raise UnreachableError(f"bjobs: {reply.words}")
    return sorted((parts[0] for parts in lines_of(reply) if parts[-1] == mark), key=int)


def elapsed_s(job_id: str, ask: Ask) -> Starts:
    """From ``bjobs``, in seconds: ``74 second(s)``."""
    reply = ask(["bjobs", "-noheader", "-o", "run_time", job_id])
    match = re.match(r"(\d+)", reply.printed.strip())
    return [(None, float(match[1]))] if reply.exit_code == 0 and match else []


def cancel_command(job_id: str) -> list[str]:
    """See ``Scheduler``."""
    return ["bkill", job_id]
