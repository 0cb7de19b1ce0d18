"""Whether the other ranks of this node are alive, as their common parent shows, before they can communicate."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from staging.errors import InputError
from staging.print_line import print_line
from staging.ranks.launch import detect
from staging.ranks.readable import is_readable

if TYPE_CHECKING:
    import psutil

PARENTS = ("hydra_pmi_proxy", "hydra_bstrap_pr", "slurmstepd", "prted", "orted")
"""Processes of launchers whose children are the ranks of a node and nothing else."""

SETTLED_S = 2.0
"""A launcher that has started no rank for this long has started all."""

LOOK_S = 0.5

CLAIMS: list[socket.socket] = []
"""Keeps the name under which one rank of a node reports for all."""


class Siblings:
    """The ranks of this node, children of one process if the launcher is known; otherwise it never finds anything."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._parent = os.getppid()
        self.expected = self._local_size() if self._is_launcher() else 0
        self._spawned = _started_with("HPCBENCH_SPAWNED")
        self._most = 0
        self._looked_at = 0.0
        self._grown_at = time.monotonic()

    def check(self) -> None:
        """Raise ``InputError`` if a rank of this node has ended, or was never started; one of the others reports it.

        May be called often.
        """
        now = time.monotonic()
        if not self.expected or now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        living = self._living()
        if living > self._most:
            self._most, self._grown_at = living, now
        if living < self.expected and now - self._grown_at >= SETTLED_S:
            self._fail(living)

    def _fail(self, living: int) -> None:
        problem = (
            f"{self.expected - living} of the {self.expected} ranks of this node ended before all ranks had met, or "
            "could not be started; see what it printed, and the launcher"
        )
        error = InputError(problem)
        # Kept until this process ends: on a busy machine the others may look long after this rank's report.
        CLAIMS.append(socket.socket(socket.AF_UNIX))
        with contextlib.suppress(OSError):
            CLAIMS[-1].bind(f"\0hpcbench-siblings-{self._parent}")
            # Printed at once, since the launcher may end this process before it reports the error.
            print_line(f"error: {problem}")
        time.sleep(LOOK_S)
        self._abort_hydra()
        time.sleep(LOOK_S)
        error.speaks = False
        raise error

    def _abort_hydra(self) -> None:
        """Ask MPICH's launcher to end all ranks on all nodes, as MPI's Abort does once MPI is initialized.

        It continues when a rank ends before that, whatever its exit code, and the others wait in MPI_Init for ever.
        """
        descriptor = self._environ.get("PMI_FD", "")
        if descriptor.isdecimal() and self._name().startswith("hydra"):
            os.write(int(descriptor), b"cmd=abort exitcode=2\n")

    def _name(self) -> str:
        try:
            return Path(f"/proc/{self._parent}/comm").read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def _is_launcher(self) -> bool:
        return "HPCBENCH_SPAWNED" in self._environ or self._name() in PARENTS

    def _local_size(self) -> int:
        try:
            return detect(self._environ).local_size
        except InputError:
            return 0

    def _living(self) -> int:
        import psutil

        try:
            children = psutil.Process(self._parent).children()
        except psutil.Error:
            # Then the launcher itself is gone, which others notice.
            return self.expected
        return sum(_lives(child) and self._is_rank(child) for child in children)

    def _is_rank(self, child: psutil.Process) -> bool:
        """Whether a child of the parent is a rank of this launch; launchers have no other children."""
        import psutil

        if not self._spawned:
            return True
        try:
            environ = child.environ()
        except psutil.Error:
            return False
        return all(environ.get(key) == self._environ.get(key) for key in ("HPCBENCH_SPAWNED", "MASTER_PORT"))


@contextmanager
def guarded_by_child(environ: Mapping[str, str]) -> Iterator[None]:
    """Within this context, a child of this process ends it, and all ranks, if another rank of the node has ended.

    For MPI_Init, in which mpi4py holds the interpreter's lock, so that no thread could do so.
    """
    siblings = Siblings(environ)
    if siblings.expected < 2 or threading.active_count() > 1:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    ended, end = os.pipe()
    rank = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(end)
        try:
            while not is_readable(ended, LOOK_S):
                siblings.check()
        except InputError:
            os.kill(rank, signal.SIGKILL)
        finally:
            os._exit(0)
    os.close(ended)
    try:
        yield
    finally:
        os.close(end)
        os.waitpid(child, 0)


def _started_with(name: str) -> bool:
    """Whether this process was started with a variable; its siblings could not see one that it got later."""
    import psutil

    try:
        return name in psutil.Process().environ()
    except psutil.Error:
        return False


def _lives(process: psutil.Process) -> bool:
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
