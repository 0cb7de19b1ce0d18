"""Flux: ``flux batch``, ``flux jobs``, ``flux cancel``."""

from __future__ import annotations

from hpcbench.batch.job import Job
from hpcbench.batch.site import Site
from hpcbench.batch.state import State

PREFIX = "# flux:"
SHELL = "/bin/bash"
COMMAND = "flux"
JOB_ID = '"$(flux job id --to=dec "$(flux getattr jobid)")"'
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
WARNS = False


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``flux batch``: one slot a node, which the instance in the job divides among ranks."""
    lines = [
        f"--job-name={job.name}", "--output=job-{{id}}.log", f"--nodes={job.nodes}", f"--time-limit={job.time_s}s",
    ]  # fmt: skip
    if site.whole_nodes:
        lines.append("--exclusive")
    else:
        lines += [f"--nslots={job.nodes}", f"--cores-per-slot={job.cores_per_node}"]
        lines += [f"--gpus-per-slot={job.gpus_per_node}"] if job.gpus_per_node else []
    lines += [f"--queue={job.queue}"] if job.queue else []
    lines += [f"--bank={job.account}"] if job.account else []
    lines += [f"--requires={job.constraint}"] if job.constraint else []
    return lines + list(site.directives)


def again() -> list[str]:
    """Shell lines that hand the script to the instance above this job's, to run when this one has ended."""
    return [
        'cd "$run"',
        "next=$((attempt + 1))",
        'flux --parent batch --env=HPCBENCH_ATTEMPT="$next" --dependency=afterany:"$job_id" job.sh | tee job-id',
    ]


def submit_command(script: str) -> list[str]:
    """The command that submits, in the folder of the script."""
    return ["flux", "batch", script]


def parse_id(printed: str) -> str:
    """A name such as ``f2Rd7xK``, behind a sign that not every terminal has."""
    return printed.strip().splitlines()[-1].strip()


def state_commands(job_id: str) -> list[list[str]]:
    """Jobs that have ended are asked for, too."""
    return [["flux", "jobs", "--no-header", "--format={status_abbrev}|{returncode}|{exception.type}", job_id]]


STATES: dict[str, State] = {
    "D": "waiting", "P": "waiting", "S": "waiting", "PD": "waiting", "R": "running", "C": "running", "CD": "done",
    "CA": "cancelled", "TO": "time limit",
}  # fmt: skip


def parse_state(printed: str) -> tuple[State, str] | None:
    """State and reason from ``flux jobs``."""
    parts = [each.strip() for each in printed.strip().split("|")]
    if parts[0] in STATES:
        return STATES[parts[0]], ""
    if parts[0] != "F" or len(parts) < 3:
        return None
    if parts[2] == "timeout":
        return "time limit", ""
    return ("cancelled", "") if parts[2] == "cancel" else ("failed", f"exit code {parts[1]}")


def cancel_command(job_id: str) -> list[str]:
    """The command that cancels."""
    return ["flux", "cancel", job_id]
