"""Flux: ``flux batch``, ``flux jobs``, ``flux cancel``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcbench.batch.job import Job
from hpcbench.batch.scheduler import Ask, JobState, JobStatus, Known, Reply, Starts, UnreachableError, lines_of
from hpcbench.batch.site import Site

TITLE = "Flux"
PREFIX = "# flux:"
SHELL = "/bin/bash"
COMMAND = "flux"
JOB_ID = '"$(flux job id --to=dec "$(flux getattr jobid)")"'
JOB_VARIABLE = "FLUX_JOB_ID"
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
KEEPS_ID = False
WARNS = False
READS_INPUT = False


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``flux batch``: one slot per node, which the instance in the job divides among ranks."""
    lines = [
        f"--job-name={job.mark}", f"--setattr=user.hpcbench={job.mark}", "--output=job-{{id}}.log",
        f"--nodes={job.nodes}", f"--time-limit={job.time_s}s",
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


def resubmit_lines() -> list[str]:
    """Shell lines that hand the script to the instance above this job's, to run after this job has ended."""
    return [
        'cd "$run" || return',
        'local next="HPCBENCH_ATTEMPT=$((attempt + 1))"',
        'flux --parent batch --env="$next" --dependency=afterany:"$job_id" job.sh | tee "$hold.next"',
    ]


def submit_command(script: str, mark: str) -> list[str]:
    """See ``Scheduler``; the script carries the mark."""
    return ["flux", "batch", script]


def parse_id(printed: str) -> str:
    """An id such as ``f2Rd7xK``; its first letter may be a sign that not every terminal can show."""
    last = (printed.strip().splitlines() or [""])[-1].strip()
    return last if re.fullmatch(r"[\u0192f][1-9A-Za-z]+|\d+", last) else ""


UNHEARD = re.compile(
    r"(unable to|cannot|not) connect|connection (failure|refused|reset|closed|aborted|timed out)|timed out|"
    r"lost connection|broker (socket|is|not)|(to|the|lost) broker|unable to|no such file|"
    r"resources? (temporarily )?unavailable",
    re.IGNORECASE,
)
"""In the errors of commands that reached no broker: phrases, since a refusal may name a queue ``interconnect``."""
REFUSED = re.compile(r"^flux-batch: error", re.MULTILINE | re.IGNORECASE)
"""``ERROR`` of what Flux refuses, ``error`` of options that its command does not know."""


def is_refusal(reply: Reply) -> bool:
    """``flux batch`` ends with 1, or 2 for its options, and says why."""
    return reply.has_failed and REFUSED.search(reply.errors) is not None and UNHEARD.search(reply.errors) is None


STATES: dict[str, JobState] = {
    "D": "waiting", "P": "waiting", "S": "waiting", "PD": "waiting", "R": "running", "C": "running", "CD": "done",
    "CA": "cancelled", "TO": "time limit",
}  # fmt: skip
UNKNOWN_ID = re.compile(r"JobID (\S+) unknown", re.IGNORECASE)


def query(job_ids: Sequence[str], ask: Ask) -> Known:
    """From ``flux jobs``, which includes ended jobs. It names the ids that it does not know."""
    form = "--format={id}|{id.dec}|{status_abbrev}|{returncode}|{exception.type}"
    reply = ask(["flux", "jobs", "--no-header", form, *job_ids])
    named = {plain(job_id) for job_id in UNKNOWN_ID.findall(reply.errors)}
    if reply.exit_code != 0 and not named:
        raise UnreachableError(f"flux jobs: {reply.words}")
    status_by_id: Known = {}
    for parts in lines_of(reply):
        one = status(parts)
        if one is not None:
            status_by_id |= {plain(parts[0]): one, parts[1]: one}
    known = {job_id: status_by_id[plain(job_id)] for job_id in job_ids if plain(job_id) in status_by_id}
    silent = [job_id for job_id in job_ids if job_id not in known and plain(job_id) not in named]
    if silent:
        raise UnreachableError(f"flux jobs says nothing about job {silent[0]}: {reply.words[:200]}")
    return known


def plain(job_id: str) -> str:
    """The id with the letter f in place of Flux's sign for it."""
    return job_id.replace("\u0192", "f")


def status(parts: Sequence[str]) -> JobStatus | None:
    """The status in one line; ``None`` if the line has none."""
    if len(parts) < 5:
        return None
    word, code, exception = parts[2:5]
    if word in STATES:
        return JobStatus(STATES[word], "", "flux")
    if word != "F":
        return None
    if exception == "timeout":
        return JobStatus("time limit", "", "flux")
    if exception == "cancel":
        return JobStatus("cancelled", "", "flux")
    return JobStatus("failed", f"exit code {code}", "flux")


def find(mark: str, ask: Ask) -> list[str]:
    """By job name, ended jobs included."""
    reply = ask(["flux", "jobs", "-a", "--no-header", f"--name={mark}", "--format={id.dec}"])
    if reply.exit_code != 0:
        raise UnreachableError(f"flux jobs: {reply.words}")
    return [plain(line.strip()) for line in reversed(reply.printed.splitlines()) if line.strip()]


def elapsed_s(job_id: str, ask: Ask) -> Starts:
    """From ``flux jobs``, in seconds."""
    reply = ask(["flux", "jobs", "--no-header", "--format={runtime}", job_id])
    match = re.fullmatch(r"\d+(\.\d+)?", reply.printed.strip())
    return [(None, float(match[0]))] if reply.exit_code == 0 and match else []


def cancel_command(job_id: str) -> list[str]:
    """See ``Scheduler``."""
    return ["flux", "cancel", job_id]
