"""How a rank ends: the words for who it is and why, its exit code, and an immediate exit if it must."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from staging.errors import Aborted, InputError
from staging.ranks.launch import started_by_srun
from staging.ranks.mpi import abort_mpi, finalize_mpi, finalize_pmi

DIED = "the process died without a word (killed, out of memory, or its node was lost)"
ALL_DIED = "the processes died without a word (killed, out of memory, or their nodes were lost)"
MOST_NAMED = 8
"""The most ranks that died together that a message names."""
PARENT_DIED = "the process that started the ranks died"


def sender(message: dict[str, Any]) -> str:
    """Who sent ``message``."""
    return f"rank {message['rank']} on {message['node']}" if message["node"] else f"rank {message['rank']}"


def died(lost: list[dict[str, Any]]) -> dict[str, Any]:
    """The message about the processes in ``lost``, which died at about the same time; ``rank`` is None for several.

    All are named: the death of one may have ended the others, and it may be any of them.
    """
    if len(lost) == 1:
        return {**lost[0], "reason": DIED}
    *names, last = [sender(one) for one in sorted(lost, key=lambda one: one["rank"])]
    if len(lost) > MOST_NAMED:
        names, last = names[:MOST_NAMED], f"{len(lost) - MOST_NAMED} more"
    return {"rank": None, "node": "", "reason": f"{', '.join(names)} and {last}: {ALL_DIED}"}


def exit_code_of(error: BaseException) -> int:
    """The exit code with which ``error`` ends a process."""
    if isinstance(error, InputError):
        return 2
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    return int(getattr(error, "exit_code", 1))


def cause_of(error: BaseException) -> dict[str, str | None]:
    """Why ``error`` ends the work, for programs: ``cause`` and, if it is a signal, the name of the ``signal``."""
    if isinstance(error, KeyboardInterrupt):
        return {"cause": "signal", "signal": "SIGINT"}
    if isinstance(error, InputError | Aborted):
        return {"cause": error.cause, "signal": getattr(error, "signal", None)}
    return {"cause": "error", "signal": None}


def is_told(error: BaseException) -> bool:
    """Whether ``error`` itself says why the work ends; any other error may result from a problem on another rank."""
    return isinstance(error, InputError | KeyboardInterrupt | SystemExit) or hasattr(error, "exit_code")


def leave(exit_code: int, *, alone: bool = False) -> NoReturn:
    """End this process at once; output is flushed, nothing else is tidied up.

    ``alone``: some ranks may not leave by themselves. MPI's Abort ends them. Slurm's srun then returns 137 and not
    ``exit_code``, so there it is the last resort. Other launchers return ``exit_code``; without Abort mpiexec of MPICH
    kills the ranks that leave a moment later, and often returns 9.
    """
    flush()
    if alone or not started_by_srun(os.environ):
        abort_mpi(exit_code)
    os._exit(exit_code)


def leave_together(exit_code: int) -> NoReturn:
    """End this process when all others call this, too: under MPI all wait here for the last one, and then leave."""
    flush()
    _part()
    finalize_pmi()
    # Destructors would end a process by SIGABRT if its threads are in the middle of a collective operation.
    os._exit(exit_code)


def part_at_exit(farewell: Callable[[], object]) -> None:
    """Call ``farewell`` when this process ends and MPI has let all ranks go."""
    if not _farewells:
        atexit.register(_part)
    _farewells.append(farewell)


def _part() -> None:
    if _farewells:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to lose, and a traceback would help nobody
    finalize_mpi()
    while _farewells:
        _farewells.pop()()


def keep_exit_code(exit_code: int) -> int:
    """``exit_code`` unchanged, kept for ``leave_at_exit``: the command of this process ends with it."""
    _kept[:] = [exit_code]
    return exit_code


def leave_at_exit() -> None:
    """Let ``leave_together`` end the interpreter, if ``keep_exit_code`` was called before.

    For a process with threads of torch's gloo. They drop sent data when they get to them, ask for the lock of an
    interpreter that has ended, and std::terminate kills the process. ``atexit`` handlers that are registered later run
    before.
    """
    atexit.register(lambda: leave_together(_kept[0]) if _kept else None)


_kept: list[int] = []
_farewells: list[Callable[[], object]] = []


def flush() -> None:
    """Pass on what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def within(seconds: float, act: Callable[[], object]) -> bool:
    """Do ``act`` in a thread and drop its errors; whether it ended within ``seconds``. If not, it is left alone."""

    def guarded() -> None:
        with contextlib.suppress(Exception):
            act()

    thread = threading.Thread(target=guarded, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The interpreter is ending and starts no more threads.
        guarded()
        return True
    thread.join(seconds)
    return not thread.is_alive()
