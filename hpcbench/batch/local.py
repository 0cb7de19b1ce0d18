"""No scheduler: the script runs here, in a process group of its own that outlives the command."""

from __future__ import annotations

from collections.abc import Sequence

from hpcbench.batch.job import Job
from hpcbench.batch.scheduler import Ask, JobStatus, Known, Reply, Starts, UnreachableError
from hpcbench.batch.site import Site

TITLE = "none"
PREFIX = "#"
SHELL = "/bin/bash"
COMMAND = "bash"
JOB_ID = '"$$"'
JOB_VARIABLE = ""
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
KEEPS_ID = True
WARNS = False
READS_INPUT = False


def directives(job: Job, site: Site) -> list[str]:
    """None."""
    return []


def resubmit_lines() -> list[str]:
    """Shell lines that start the script once more. Bash runs no exit trap when ``exec`` replaces it."""
    ended = """printf '%(%s)T %d\\n' -1 "$status" > "$hold.end" || true"""
    return [ended, 'HPCBENCH_ATTEMPT=$((attempt + 1)) exec bash "$run/job.sh" "$@"']


def submit_command(script: str, mark: str) -> list[str]:
    """A shell that starts the script in a session of its own, and prints the process number."""
    start = 'setsid nohup bash "$1" "$2" > job.log 2>&1 < /dev/null & echo "$!"'
    return ["bash", "-c", start, "submit", script, mark]


def parse_id(printed: str) -> str:
    """The process number."""
    return printed.strip() if printed.strip().isdigit() else ""


def is_refusal(reply: Reply) -> bool:
    """Whether the shell could not start the script; one that was killed may have done so."""
    return reply.has_failed


def query(job_ids: Sequence[str], ask: Ask) -> Known:
    """From ``ps``: a job runs while its session has a process; how it ended is in the run folder.

    Ranks outlive a script that is killed. Whether the session is the job's: ``hpcbench.batch.local_session``.
    """
    reply = ask(["ps", "--no-headers", "-o", "sid=,stat=", "--sid", ",".join(job_ids)])
    if reply.exit_code not in (0, 1):
        raise UnreachableError(f"ps: {reply.words}")
    rows = [line.split() for line in reply.printed.splitlines()]
    # A zombie has ended; its parent has not yet collected its exit status.
    return {row[0]: JobStatus("running", "", "ps") for row in rows if len(row) > 1 and not row[1].startswith("Z")}


def find(mark: str, ask: Ask) -> list[str]:
    """By the last word of the processes' command lines."""
    reply = ask(["ps", "--no-headers", "-ww", "-eo", "pid=,args="])
    if reply.exit_code != 0:
        raise UnreachableError(f"ps: {reply.words}")
    rows = [line.split() for line in reply.printed.splitlines()]
    return [row[0] for row in rows if row[1:2] == ["bash"] and row[-1] == mark]


def elapsed_s(job_id: str, ask: Ask) -> Starts:
    """None: there is no accounting."""
    return []


def cancel_command(job_id: str) -> list[str]:
    """The command that ends the process group."""
    return ["kill", "-TERM", "--", f"-{job_id}"]
