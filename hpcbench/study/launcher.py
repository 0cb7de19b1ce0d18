"""Starts the runs of a study as processes of their own, on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from hpcbench.parallel.spawn import FOREIGN

RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                  "MASTER_ADDR", "MASTER_PORT", "HPCBENCH_SPAWNED")  # fmt: skip


class Process(Protocol):
    """A run under way."""

    def poll(self) -> int | None:
        """Its exit code (128+n for a signal n), or ``None`` while it runs."""

    def stop(self, at_once: bool = False) -> None:
        """Ask it to end, leaving a checkpoint; or end it."""


class Launcher(Protocol):
    """Starts runs."""

    def start(self, arguments: Sequence[str], log: Path) -> Process:
        """Start ``hpcbench ARGUMENTS``; what it prints goes to the end of ``log``."""


class LocalProcess:
    """A run as a child of this process, in a process group of its own: Ctrl-C at a terminal does not reach it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def stop(self, at_once: bool = False) -> None:
        with contextlib.suppress(ProcessLookupError):
            if at_once:
                os.killpg(self._process.pid, signal.SIGKILL)
            elif self.poll() is None:
                os.kill(self._process.pid, signal.SIGTERM)


class LocalLauncher:
    """Runs on this machine. Through the open file ``lock`` they hold the study's folder even if it is killed."""

    def __init__(self, lock: int | None = None) -> None:
        self._inherited = () if lock is None else (lock,)

    def start(self, arguments: Sequence[str], log: Path) -> Process:
        """See ``Launcher``."""
        command = [sys.executable, "-m", "hpcbench", *arguments]
        with log.open("ab") as output:
            return LocalProcess(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    env=own_environment(os.environ), process_group=0, pass_fds=self._inherited,
                )
            )  # fmt: skip


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a launcher told this process of ranks: a run of the study is a job of its own."""
    kept = {name: value for name, value in environ.items() if not name.startswith(FOREIGN)}
    return {name: value for name, value in kept.items() if name not in RANK_VARIABLES}
