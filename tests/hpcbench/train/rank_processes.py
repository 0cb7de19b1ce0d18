"""Runs of hpcbench in rank processes that tests start themselves, as ``--parallel.devices`` would."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hpcbench.parallel.spawn import rank_environments

PROGRAM = Path(__file__).parent / "programs" / "commands.py"
Prepare = tuple[str, list[object]]
"""A function of the tests, as ``module:name``, and its arguments, which JSON can carry."""


class RankProcesses:
    """Ranks that each run commands one after the other; the interface is that of ``Popen``.

    A training that counts its all-reduces of gradients leaves their number in its folder, as ``collectives``.
    ``prepare`` is called in each rank before its first command.
    """

    def __init__(self, ranks: int, commands: list[list[str]], prepare: Prepare | None = None) -> None:
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as this object
        places = [rank_environments(ranks, os.environ) for _ in commands]
        self._processes = [
            subprocess.Popen(
                [sys.executable, PROGRAM, json.dumps([[place[rank] for place in places], commands, prepare])],
                stdout=self._output,
                stderr=subprocess.STDOUT,
            )
            for rank in range(ranks)
        ]

    @property
    def returncode(self) -> int | None:
        """The largest exit code once all have ended."""
        return self.poll()

    def poll(self) -> int | None:
        """The same, without waiting."""
        codes = [process.poll() for process in self._processes]
        return None if None in codes else max(code for code in codes if code is not None)

    def send_signal(self, number: int) -> None:
        """To all that have not ended."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    def communicate(self, timeout: float = 300) -> tuple[str, None]:
        """What they printed, when they have ended. Raises ``subprocess.TimeoutExpired``."""
        deadline = time.monotonic() + timeout
        try:
            for process in self._processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            raise subprocess.TimeoutExpired("hpcbench", timeout, self._said()) from None
        return self._said(), None

    def _said(self) -> str:
        self._output.seek(0)
        return self._output.read()
