"""PBS Pro and OpenPBS: ``qsub``, ``qstat``, ``qselect``, ``qdel``."""

from __future__ import annotations

import getpass
import json
import re
from collections.abc import Sequence
from typing import Any

from hpcbench.batch.job import Job
from hpcbench.batch.scheduler import Ask, JobState, JobStatus, Known, Reply, Starts, UnreachableError
from hpcbench.batch.shell_quoting import clock
from hpcbench.batch.site import Site

TITLE = "PBS"
PREFIX = "#PBS"
SHELL = "/bin/bash -l"  # the job does not get the submitter's environment
COMMAND = "qsub"
JOB_ID = '"${PBS_JOBID%%.*}"'
JOB_VARIABLE = "PBS_JOBID"
ATTEMPT = "${HPCBENCH_ATTEMPT:-1}"
KEEPS_ID = False
WARNS = False
READS_INPUT = False


def directives(job: Job, site: Site) -> list[str]:
    """The lines for ``qsub``: chunks of one node each, on nodes of their own, output and errors in one file."""
    chunk = f"select={job.nodes}"
    if not site.whole_nodes:
        chunk += f":ncpus={job.cores_per_node * site.node.threads_per_core}"
        chunk += f":mpiprocs={job.ranks_per_node}:ompthreads={job.cores_per_rank}"
        chunk += f":ngpus={job.gpus_per_node}" if job.gpus_per_node else ""
    elif site.launcher == "openmpi":  # it starts no more ranks on a node than PBS lists processes there
        chunk += f":mpiprocs={job.ranks_per_node}"
    chunk += f":mem={job.memory_gib}gb" if job.memory_gib is not None else ""
    chunk += f":{job.constraint}" if job.constraint else ""
    lines = [f"-N {job.name}", f"-v HPCBENCH_MARK={job.mark}", f"-l {chunk}", f"-l walltime={clock(job.time_s)}"]
    lines += ["-l place=scatter:excl" if site.whole_nodes else "-l place=scatter", "-j oe", "-r y"]
    lines += [f"-A {job.account}"] if job.account else []
    # A reservation is a queue of its own; a request that names both is refused.
    queue = job.reservation or job.queue
    lines += [f"-q {queue}"] if queue else []
    lines += [f"-l qos={job.qos}"] if job.qos else []
    return lines + list(site.directives)


def resubmit_lines() -> list[str]:
    """Shell lines that submit the script once more, as a job that waits for the end of this one."""
    return [
        'local variables="HPCBENCH_ATTEMPT=$((attempt + 1)),HPCBENCH_MARK=${HPCBENCH_MARK:-}"',
        'cd "$run" || return',
        'qsub -v "$variables" -W depend=afterany:"$PBS_JOBID" job.sh | tee "$hold.next"',
    ]


def submit_command(script: str, mark: str) -> list[str]:
    """See ``Scheduler``; the script carries the mark."""
    return ["qsub", script]


def parse_id(printed: str) -> str:
    """``123.server``, unchanged."""
    last = (printed.strip().splitlines() or [""])[-1].strip()
    return last if last[:1].isdigit() else ""


UNHEARD = re.compile(
    r"(cannot|not|to) (connect|communicate)|connection (failure|refused|reset|closed|aborted|timed out)|timed? out\b|"
    r"no server (is )?(running|available)|not respond|communications? (failure|error)|end of (file|message)|"
    r"errno ?[=:]",
    re.IGNORECASE,
)
"""In the errors of commands that did not reach the server, or whose answer was lost: phrases, since a refusal may name
a queue ``interconnect``.
"""
REFUSED = re.compile(r"^qsub:", re.MULTILINE)


def is_refusal(reply: Reply) -> bool:
    """``qsub`` ends with a code other than 0 and says why; it does the same for a lost connection."""
    return reply.has_failed and REFUSED.search(reply.errors) is not None and UNHEARD.search(reply.errors) is None


STATES: dict[str, JobState] = {
    "Q": "waiting", "H": "waiting", "W": "waiting", "T": "waiting", "M": "waiting", "S": "waiting", "U": "waiting",
    "B": "running", "R": "running", "E": "running",
}  # fmt: skip
CANCELLED, OVER_TIME = 271, -29
"""Exit codes of PBS: 256 + SIGTERM, and a job that was killed over its time limit (JOB_EXEC_KILL_WALLTIME)."""
DELETED = "91"
"""The substate of a job that ``qdel`` has ended (JOB_SUBSTATE_TERMINATED). Its exit code is that of its script, which
handles SIGTERM, or 256 + SIGKILL if that took too long."""
UNKNOWN_ID = re.compile(r"unknown job id:? *(\S*)", re.IGNORECASE)


def query(job_ids: Sequence[str], ask: Ask) -> Known:
    """From ``qstat``, which includes ended jobs. It names ids that it does not know, and ends with 153 for them."""
    reply = described(ask, *job_ids)
    named = {number(job_id) for job_id in UNKNOWN_ID.findall(reply.errors)}
    if reply.exit_code != 0 and not named:
        raise UnreachableError(f"qstat: {reply.words}")
    status_by_number = {number(name): status(job) for name, job in jobs_of(reply).items()}
    known = {job_id: status_by_number[number(job_id)] for job_id in job_ids if number(job_id) in status_by_number}
    silent = [job_id for job_id in job_ids if job_id not in known and number(job_id) not in named]
    if silent:
        raise UnreachableError(f"qstat says nothing about job {silent[0]}: {reply.words[:200]}")
    return {job_id: job_status for job_id, job_status in known.items() if job_status is not None}


NO_HISTORY = re.compile(r"not configured to maintain job history", re.IGNORECASE)
"""Servers whose ``job_history_enable`` is unset, as it is by default, forget a job at its end and refuse ``-x``."""


def described(ask: Ask, *job_ids: str) -> Reply:
    """What ``qstat`` says about jobs, ended ones included."""
    return with_history(ask, "qstat", "-f", "-F", "json", *job_ids)


def with_history(ask: Ask, command: str, *words: str) -> Reply:
    """What a command says, also about ended jobs if the server remembers them."""
    reply = ask([command, "-x", *words])
    return ask([command, *words]) if reply.exit_code != 0 and NO_HISTORY.search(reply.errors) else reply


def number(job_id: str) -> str:
    """``123`` of ``123.server``."""
    return job_id.split(".", maxsplit=1)[0]


def jobs_of(reply: Reply) -> dict[str, Any]:
    """Jobs by id."""
    try:
        jobs = json.loads(reply.printed or "{}").get("Jobs") or {}
    except (json.JSONDecodeError, AttributeError) as error:
        raise UnreachableError(f"qstat: {reply.words[:200]}") from error
    return dict(jobs)


def status(job: dict[str, Any]) -> JobStatus:
    """The status of one job as ``qstat`` describes it."""
    letter, code = job.get("job_state", ""), job.get("Exit_status")
    if letter in STATES:
        return JobStatus(STATES[letter], str(job.get("comment", "")) if STATES[letter] == "waiting" else "", "qstat")
    if code is None:
        return JobStatus("cancelled", "before it ran", "qstat")
    if int(code) and str(job.get("substate", "")) == DELETED:
        return JobStatus("cancelled", f"exit code {code}", "qstat")
    ends: dict[int, JobState] = {0: "done", CANCELLED: "cancelled", OVER_TIME: "time limit"}
    return JobStatus(ends.get(int(code), "failed"), "" if code == 0 else f"exit code {code}", "qstat")


def find(mark: str, ask: Ask) -> list[str]:
    """By a variable of the user's queued and ended jobs; ``qstat`` by itself would list everybody's."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError) as error:  # KeyError before Python 3.13, OSError since
        raise UnreachableError("qselect -u needs the name of this user, who has none here; set LOGNAME") from error
    selected = with_history(ask, "qselect", "-u", user)
    if selected.exit_code != 0:
        raise UnreachableError(f"qselect: {selected.words}")
    if not selected.printed.strip():
        return []
    reply = described(ask, *selected.printed.split())
    if reply.exit_code != 0 and not UNKNOWN_ID.search(reply.errors):  # one may have been forgotten meanwhile
        raise UnreachableError(f"qstat: {reply.words}")
    marked = [name for name, job in jobs_of(reply).items() if has_mark(job.get("Variable_List"), mark)]
    return sorted(marked, key=lambda name: int(re.sub(r"\D", "", number(name)) or 0))


def has_mark(variables: Any, mark: str) -> bool:
    """Whether a job has the variable; some versions give variables as a text, others as names and values."""
    if isinstance(variables, dict):
        return bool(variables.get("HPCBENCH_MARK") == mark)
    return f"HPCBENCH_MARK={mark}" in str(variables).split(",")


def elapsed_s(job_id: str, ask: Ask) -> Starts:
    """From ``qstat``, for the job's last start."""
    reply = described(ask, job_id)
    starts: Starts = []
    for job in jobs_of(reply).values() if reply.exit_code == 0 else []:
        match = re.fullmatch(r"(\d+):(\d\d):(\d\d)", str(job.get("resources_used", {}).get("walltime", "")))
        if match:
            hours, minutes, seconds = map(int, match.groups())
            starts.append((None, 3600.0 * hours + 60 * minutes + seconds))
    return starts


def cancel_command(job_id: str) -> list[str]:
    """See ``Scheduler``."""
    return ["qdel", job_id]
