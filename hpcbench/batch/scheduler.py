"""What a scheduler is to this package: a module with these constants and functions, and what its answers mean.

A scheduler that answers gives the state of each job, or says that it does not know the job. One that cannot be asked
does neither and raises ``UnreachableError``; after that, nothing may be submitted that may already be in its queue.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from hpcbench.batch.job import Job
from hpcbench.batch.site import Site

JobState = Literal["waiting", "running", "done", "failed", "cancelled", "time limit", "preempted", "lost", "unknown"]
"""``lost``: the scheduler no longer knows the job, and its run left nothing. ``unknown``: it cannot be asked."""
ENDED: tuple[JobState, ...] = ("done", "failed", "cancelled", "time limit", "preempted", "lost")


@dataclass(frozen=True)
class JobStatus:
    """The state of a job, and why."""

    state: JobState
    reason: str = ""
    source: str = ""
    """The command that reported it, or ``run folder``."""


ENDING_SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE,
    signal.SIGTERM,
)  # fmt: skip
"""Signals that end a command of a scheduler, as crashes, administrators and lost connections do."""


@dataclass(frozen=True)
class Reply:
    """What a command of a scheduler printed; ``exit_code`` is ``None`` if it did not answer in time."""

    exit_code: int | None
    printed: str
    errors: str = ""

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended the command, or the one that a shell script in its place has called.

        Such a shell ends with 128 + the signal. Other codes above 128 are those of the command: ``qsub`` ends with its
        error number modulo 256 (170 for an unknown queue), ``bsub`` with 255.
        """
        return self.exit_code is not None and (
            self.exit_code < 0 or self.exit_code in [128 + number for number in ENDING_SIGNALS]
        )

    @property
    def has_failed(self) -> bool:
        """Whether the command came to its own end, with an error."""
        return self.exit_code not in (0, None) and not self.was_killed

    @property
    def words(self) -> str:
        """What it said, in one line: errors, else what it printed, else how it ended."""
        ended = "no answer in time" if self.exit_code is None else f"exit code {self.exit_code}"
        return " ".join((self.errors.strip() or self.printed.strip() or ended).split())


Ask = Callable[[Sequence[str]], Reply]
"""Runs a command. Raises ``UnreachableError`` if there is no such command."""
Known = dict[str, JobStatus]
"""The jobs that a scheduler knows, by the ids with which it was asked."""

Starts = list[tuple[float | None, float]]
"""For each start of a job: when, in seconds since 1970 (``None`` if not reported), and how many seconds it lasted."""


class UnreachableError(Exception):
    """The scheduler cannot be asked; the text says why."""


class Scheduler(Protocol):
    """The members that the module of each scheduler has."""

    @property
    def TITLE(self) -> str:
        """Its name for people."""

    @property
    def PREFIX(self) -> str:
        """Begins a line of the script that the scheduler reads."""

    @property
    def SHELL(self) -> str:
        """First line of the script, after ``#!``."""

    @property
    def COMMAND(self) -> str:
        """A command that every machine with this scheduler has."""

    @property
    def JOB_ID(self) -> str:
        """The id of the job, as its shell reads it."""

    @property
    def JOB_VARIABLE(self) -> str:
        """The environment variable that has the id within the job; empty if there is none."""

    @property
    def ATTEMPT(self) -> str:
        """The attempt number from 1 on, as the shell of the job reads it."""

    @property
    def KEEPS_ID(self) -> bool:
        """Whether an attempt that continues another one is the same job, and has its id."""

    @property
    def WARNS(self) -> bool:
        """Whether the scheduler itself sends the signal before the time limit."""

    @property
    def READS_INPUT(self) -> bool:
        """Whether its command reads the script from standard input."""

    def directives(self, job: Job, site: Site) -> list[str]:
        """Lines of the script, without the prefix."""

    def resubmit_lines(self) -> list[str]:
        """Shell lines that start the job once more when this attempt has ended; the last one's exit code counts.

        If that is another job, they write what the scheduler prints about it into ``$hold.next``.
        """

    def submit_command(self, script: str, mark: str) -> list[str]:
        """The command that submits ``script``, in its folder."""

    def parse_id(self, printed: str) -> str:
        """The id of the job that was submitted; empty if there is none."""

    def is_refusal(self, reply: Reply) -> bool:
        """Whether the job was certainly refused, so that no queue has it: the command itself ended and said so."""

    def query(self, job_ids: Sequence[str], ask: Ask) -> Known:
        """Those of the jobs that it knows, with one command if possible. Raises ``UnreachableError``."""

    def find(self, mark: str, ask: Ask) -> list[str]:
        """Ids of the jobs of this user that were submitted with ``mark``, oldest first. Raises ``UnreachableError``."""

    def elapsed_s(self, job_id: str, ask: Ask) -> Starts:
        """How long each start of a job lasted, by the accounting; empty if unknown. Raises ``UnreachableError``."""

    def cancel_command(self, job_id: str) -> list[str]:
        """The command that cancels."""


def lines_of(reply: Reply) -> list[list[str]]:
    """Lines such as ``17|RUNNING|None`` as their parts."""
    return [[part.strip() for part in line.split("|")] for line in reply.printed.splitlines() if line.strip()]
