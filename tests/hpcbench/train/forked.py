"""Runs of hpcbench in processes forked by a server, which has imported torch once for all of them.

Importing torch takes a process about three seconds, which is longer than most runs of the tests.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from hpcbench.exits import DONE, TARGET_NOT_REACHED
from hpcbench.parallel.spawn import rank_environments
from staging.ranks.process_exit import keep_exit_code

IMPORTED = ["hpcbench.train.run", "hpcbench.cli.train", "hpcbench.results.report", "hpcbench.parallel.gradients",
            "hpcbench.parallel.batchnorm", "apps.cosmoflow.task", "apps.deepcam.task"]  # fmt: skip


class Forked:
    """Processes that run commands one after the other, each as one rank of all; the interface is that of ``Popen``.

    A training that counts its all-reduces of gradients leaves their number in its folder, as ``collectives``.
    ``prepare``, which can be pickled, is called in each process before its first command.
    """

    def __init__(self, ranks: int, commands: list[list[str]], prepare: Callable[[], object] | None = None) -> None:
        self._output = tempfile.NamedTemporaryFile(prefix="forked-")  # noqa: SIM115 - as long as this object
        output = Path(self._output.name)
        places = [rank_environments(ranks, os.environ) for _ in commands]
        context = server()
        self._processes: list[ForkServerProcess] = []
        for rank in range(ranks):
            environments = [place[rank] for place in places]
            process = context.Process(target=run, args=(environments, commands, str(Path.cwd()), output, prepare))
            process.start()
            self._processes.append(process)

    @property
    def returncode(self) -> int | None:
        """The largest exit code once all have ended."""
        return self.poll()

    def poll(self) -> int | None:
        """The same, without waiting."""
        codes = [process.exitcode for process in self._processes]
        return None if None in codes else max(code for code in codes if code is not None)

    def send_signal(self, number: int) -> None:
        """To all that have not ended."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                if process.exitcode is None and process.pid is not None:
                    os.kill(process.pid, number)

    def communicate(self, timeout: float = 300) -> tuple[str, None]:
        """What they printed, when they have ended. Raises ``subprocess.TimeoutExpired``."""
        deadline = time.monotonic() + timeout
        for process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)
            raise subprocess.TimeoutExpired("hpcbench", timeout, self._said())
        return self._said(), None

    def _said(self) -> str:
        return Path(self._output.name).read_text()


@cache
def server() -> ForkServerContext:
    """The server of this process; it starts with the first process that it is asked for.

    A process has one server. One that a test of loaders or of simulators started has not imported torch: it ends.
    """
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def run(
    environments: list[dict[str, str]], commands: list[list[str]], folder: str, output: Path,
    prepare: Callable[[], object] | None = None,
) -> None:  # fmt: skip
    """All commands as one of the ranks; the exit code is that of the first that fails."""
    from hpcbench.cli.main import main
    from hpcbench.results import style
    from hpcbench.train.loop import Trainer

    def stop_clock(trainer: Trainer, *args: Any) -> None:
        if trainer.run.is_first and hasattr(trainer.step.reducer, "collectives"):
            (trainer.run.folder.path / "collectives").write_text(str(trainer.step.reducer.collectives))
        real_stop(trainer, *args)

    real_stop, Trainer.stop_clock = Trainer.stop_clock, stop_clock  # type: ignore[method-assign]
    style.svg = lambda figure, name: "<svg></svg>"  # drawing takes longer than a short run
    os.chdir(folder)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    if prepare is not None:
        os.environ.update(environments[0])
        prepare()
    code = DONE
    for environ, words in zip(environments, commands, strict=True):
        os.environ.clear()
        os.environ.update(environ)
        sys.argv = ["hpcbench", *words]
        code = main(words)
        if code not in (DONE, TARGET_NOT_REACHED):
            break
    sys.stdout.flush()
    # From Python 3.13 on such a process calls what is registered for the exit, which ends it as the last command did.
    sys.exit(keep_exit_code(code if len(commands) == 1 or code != TARGET_NOT_REACHED else DONE))
