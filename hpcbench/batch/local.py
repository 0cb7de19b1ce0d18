"""No scheduler: the script runs here, in a process group of its own that outlives the command."""

from __future__ import annotations

from hpcbench.batch.job import Job
from hpcbench.batch.site import Site
from hpcbench.batch.state import State

PREFIX = "#"
SHELL = "/bin/bash"
COMMAND = "bash"
JOB_ID = '"$$"'
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
WARNS = False


def directives(job: Job, site: Site) -> list[str]:
    """None."""
    return []


def again() -> list[str]:
    """Shell lines that start the script once more."""
    return ['HPCBENCH_ATTEMPT=$((attempt + 1)) exec bash "$run/job.sh"']


def submit_command(script: str) -> list[str]:
    """A shell that starts the script in a session of its own, and prints its process number."""
    return ["bash", "-c", 'setsid nohup bash "$1" > job.log 2>&1 < /dev/null & echo "$!"', "submit", script]


def parse_id(printed: str) -> str:
    """The process number."""
    return printed.strip()


def state_commands(job_id: str) -> list[list[str]]:
    """Whether the process is there; how it ended stands in the run folder."""
    return [["ps", "--no-headers", "-o", "stat=", "-p", job_id]]


def parse_state(printed: str) -> tuple[State, str] | None:
    """A process that is there runs, unless nobody has taken up its end."""
    return ("running", "") if printed.strip() and not printed.strip().startswith("Z") else None


def cancel_command(job_id: str) -> list[str]:
    """The command that ends the process group."""
    return ["kill", "-TERM", "--", f"-{job_id}"]
