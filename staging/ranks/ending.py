"""How a rank ends: who it is and why in words, with which exit code, and at once where it must."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, NoReturn

from staging.errors import InputError
from staging.ranks.mpi import abort_mpi

DIED = "the process died without a word (killed, out of memory, or its node was lost)"
PARENT_DIED = "the process that started the ranks died"


def sender(message: dict[str, Any]) -> str:
    """Who sent ``message``."""
    return f"rank {message['rank']} on {message['node']}" if message["node"] else f"rank {message['rank']}"


def exit_code_of(error: BaseException) -> int:
    """The exit code with which ``error`` ends a process."""
    if isinstance(error, InputError):
        return 2
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    return int(getattr(error, "exit_code", 1))


def leave(exit_code: int) -> NoReturn:
    """End this process at once, and under mpiexec all others; output is flushed, nothing else is tidied up."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    abort_mpi(exit_code)
    os._exit(exit_code)
