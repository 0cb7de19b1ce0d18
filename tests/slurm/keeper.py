"""Ends the daemons and the jobs of a test's Slurm when the test process is gone, in whatever way it ended.

``python keeper.py SLURM_CONF``: reads its input, which ends with whoever started it, and then kills every process whose
environment names this configuration. Others of the machine have another one.
``python keeper.py munge LOCK``: starts the munge service, and ends it when no test process holds ``LOCK`` any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def processes_of(**variables: str) -> list[int]:
    """Ids of the processes that were started with all of these environment variables."""
    wanted = {f"{name}={value}".encode() for name, value in variables.items()}
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # one that has ended meanwhile
            if wanted <= set((path / "environ").read_bytes().split(b"\0")):
                found.append(int(path.name))
    return [pid for pid in found if pid != os.getpid()]


def kill_all(limit_s: float = 10.0, **variables: str) -> None:
    """Kill the processes with these variables, and what they start meanwhile."""
    deadline = time.monotonic() + limit_s
    while (found := processes_of(**variables)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def serve_munge(lock: Path) -> None:
    """The authentication service that all test processes share, from now on until none of them needs it."""
    service = subprocess.Popen(
        ["munged", "--foreground"], user="munge", group="munge", extra_groups=[], env={"PATH": PATH},
        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    sys.stdin.read()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        service.terminate()
        service.wait()


def main(words: list[str]) -> None:
    """See the first lines."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which what it starts would inherit
    if words[0] == "munge":
        serve_munge(Path(words[1]))
        return
    sys.stdin.read()
    kill_all(SLURM_CONF=words[0])


if __name__ == "__main__":
    main(sys.argv[1:])
