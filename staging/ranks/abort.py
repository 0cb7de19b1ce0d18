"""One rank fails, all ranks end: a rank's error goes to rank 0 and from there to the others, and so does its death.

Without this the others wait in a collective operation until its time-out, or for ever. A rank announces an error to
rank 0, which writes the end of the run into its log and notifies the others. A killed process announces nothing, but
its connection to rank 0 ends without a farewell, also if rank 0 is the one killed. So a death is noticed at once and
never suspected wrongly, as it would be with heartbeats if a process is only busy.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, NoReturn

from staging.errors import Aborted, EveryRankError, InputError
from staging.print_line import print_line
from staging.ranks.connections import Connections, Peers
from staging.ranks.messages import Lines
from staging.ranks.mpi import uses_mpi
from staging.ranks.process_exit import (
    DIED,
    PARENT_DIED,
    cause_of,
    died,
    exit_code_of,
    is_told,
    leave,
    leave_together,
    part_at_exit,
    sender,
    within,
)
from staging.ranks.signals import Interrupted, what_ended

LOST = "rank_lost"
"""The cause if a process died without a message."""

OTHERS_FIRST_S = 0.5
"""How long an unexpected error waits for news from other ranks: a broken collective is a result, not the cause."""

LAST_WORDS_S = 2.0
"""How long the rank that failed may take to print its error before the others end (and a launcher kills it)."""

TOGETHER_S = 120.0
"""How long ranks that have agreed to end wait for rank 0, which meanwhile writes the end of the run."""

ACKNOWLEDGE_S = 10.0
"""How long a failing rank waits for rank 0 to write the end of the run."""

ON_ABORT_S = 10.0
"""How long recording why the run ends may take; a hanging file system may be what ends it."""


class AbortWatcher:
    """Within this context, an exception on one rank, or its death, ends all ranks with a non-zero exit code.

    ``on_abort(reason)`` is called on every rank that is ended from outside, in the watcher's thread, while the main
    thread may hang in a collective operation; ``cause`` and ``signal`` then say why, in words for programs. An
    exception that leaves the ``with`` block continues after rank 0 knows of it, at once if all ranks have it
    (``EveryRankError``, ``Aborted.everywhere``). With one process nothing happens. May be made before the main work;
    ``on_abort`` may be set later. Rank 0 reports bad input that one rank finds, and the error's ``speaks`` becomes
    false, so that one line is printed. That line begins with ``program``, and ``node`` is the name of this rank's node
    in it; ``with_parent`` also ends the ranks when the process that started this one dies. All ranks end with one exit
    code, under srun by MPI's Abort only if one may not end by itself. ``until_exit``, for the main work of a process,
    continues to watch after the block, without ``on_abort``, until MPI has let all ranks go: a rank that dies before
    then would leave the others in MPI's Finalize for ever.
    """

    def __init__(
        self,
        group: Peers,
        on_abort: Callable[[str], None] | None = None,
        *,
        program: str,
        node: str = "",
        with_parent: bool = False,
        until_exit: bool = False,
    ) -> None:
        self.on_abort = on_abort
        self.on_message: Callable[[dict[str, Any]], None] = lambda message: None
        """Called in the watcher's thread with messages that others send by ``tell``."""
        self.cause = LOST
        """As in ``Aborted``; ``rank_lost`` if a process died without a message."""
        self.signal: str | None = None
        """Name of the signal that another rank got, if that is the cause."""
        self._program = program
        self._node = node
        self._rank = group.rank
        self._world_size = group.world_size
        self._reason: str | None = None
        self._announced: dict[str, Any] | None = None
        self._ending: dict[str, Any] | None = None
        self._said = False
        self._code = 1
        self._until_exit = until_exit
        self._all_stay = True
        """Whether no rank waits in MPI's Finalize for the others."""
        self._received = threading.Event()
        self._acknowledged = threading.Event()
        self._over = threading.Event()
        self._parted = threading.Event()
        self._closed = threading.Event()
        self._failing = threading.Event()
        self._parent = os.getppid() if with_parent else None
        self._connections = Connections()
        if self._world_size > 1:
            self._connections.meet(group, node, self._hear, self._miss)

    def __enter__(self) -> AbortWatcher:
        if self._world_size > 1:
            target = self._watch_as_hub if self._rank == 0 else self._watch_as_client
            self._thread = threading.Thread(target=target, name="abort-watcher", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._world_size == 1:
            return
        error = what_ended(error)
        if error is None or isinstance(error, EveryRankError) or (isinstance(error, SystemExit) and not error.code):
            self._part()
            return
        if isinstance(error, Aborted) and error.everywhere:
            self._end_everywhere(error)
            return
        reason = f"{type(error).__name__}: {error}"
        if self._rank == 0 and isinstance(error, InputError | Interrupted) and self._reason is None:
            self._say(f"{sender(self._sender())}: {reason}")
            self._said = True
        self._code = exit_code_of(error)
        self._failing.set()
        if self.reason_from_elsewhere(0 if is_told(error) else OTHERS_FIRST_S) is not None:
            # The watcher's thread ends this process as soon as the reason is written.
            time.sleep(ACKNOWLEDGE_S)
        self.announce(reason, exit_code_of(error), **cause_of(error))
        # Rank 0 reports a signal, even if it is too slow to confirm that: it got the signal, too, or this message.
        if (self._said and isinstance(error, InputError)) or (isinstance(error, Interrupted) and self._is_heard()):
            error.speaks = False

    def reason_from_elsewhere(self, wait_s: float = 0.0) -> str | None:
        """Why another rank ended the run, if it did, waiting up to ``wait_s`` for its message."""
        return self._reason if self._received.wait(wait_s) else None

    def announce(
        self, reason: str, exit_code: int = 1, *, cause: str | None = "error", signal: str | None = None
    ) -> None:
        """End all other ranks because of ``reason``; returns once rank 0 has been notified and has written its log.

        The calling process continues, to print its error, and ends with ``exit_code`` when the interpreter exits.
        ``cause`` and ``signal`` are those of ``Aborted``, for the others.
        """
        if self._world_size == 1 or self._announced is not None:
            return
        message = {"kind": "abort", "reason": reason, "code": exit_code or 1, "said": self._said}
        self._announced = message | {"cause": cause, "signal": signal} | self._sender()
        atexit.register(self._leave_at_exit)
        if self._rank == 0:
            self._connections.wake()
            return
        with contextlib.suppress(OSError):
            self._connections.hub.send(self._announced)
            self._acknowledged.wait(ACKNOWLEDGE_S)

    def end_all(self, error: BaseException) -> NoReturn:
        """End all ranks, including this one, for an error in a thread other than the main one, which may hang."""
        if self._parted.is_set():  # the ranks are ending already, which breaks what this thread does with others
            threading.Event().wait()
        reason, code = f"{type(error).__name__}: {error}", exit_code_of(error)
        if self._rank == 0:
            self._end({"kind": "abort", "reason": reason, "code": code, **cause_of(error), **self._sender()})
        self.announce(reason, code, **cause_of(error))
        leave(code)

    def end_at_once(self, reason: str, exit_code: int = 1, *, cause: str, aloud: bool = True) -> NoReturn:
        """End all ranks, this one first, whatever rank 0 does; ``reason`` itself names the rank it is about."""
        message = {"kind": "abort", "reason": reason, "code": exit_code, "cause": cause, "rank": None}
        self._announced = message
        if self._rank == 0 and self._world_size > 1:
            # The thread that reads the connections ends them, since two would take each other's messages.
            self._ending = message
            self._connections.wake()
            time.sleep(ON_ABORT_S + 2 * LAST_WORDS_S)
        self._end(message, aloud=aloud)

    def _is_heard(self) -> bool:
        """Whether rank 0 reports why this rank ends: it has done so, or will."""
        return self._said or self._rank != 0

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message of a kind that this class does not use to rank 0, or from there to all others."""
        self._connections.tell_all(message)

    def _leave_at_exit(self) -> None:
        assert self._announced is not None
        # A rank that was acknowledged leaves the last resort to rank 0.
        alone = not (self._end_others(self._announced) if self._rank == 0 else self._acknowledged.is_set())
        leave(self._announced["code"], alone=alone)

    def _end_everywhere(self, error: Aborted) -> None:
        """End for a reason that all ranks agreed on, once rank 0 is done: launchers end the others when one leaves."""
        if self.on_abort is not None:
            with contextlib.suppress(Exception):
                self.on_abort(str(error))
        atexit.register(leave_together, error.exit_code)
        if self._rank == 0:
            self._connections.tell_all({"kind": "over"})
        self._part()
        if self._rank != 0:
            self._over.wait(TOGETHER_S)

    def _part(self) -> None:
        """Stop watching, now or when MPI lets all ranks go; what must be written is written."""
        self._parted.set()
        if self._until_exit and uses_mpi():
            self.on_abort = None
            part_at_exit(self._say_goodbye)
        else:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        self._closed.set()
        self._connections.tell_all({"kind": "bye"})

    def _watch_as_client(self) -> None:
        hub = self._connections.hub
        while True:
            self._connections.wait(1.0)
            self._check_parent()
            for message in hub.receive():
                if message["kind"] in ("over", "bye"):
                    self._over.set()
                if message["kind"] == "bye":
                    return
                if message["kind"] == "over":
                    continue
                if message["kind"] != "abort":
                    self.on_message(message)
                    continue
                if self._announced is None:
                    self._end(message)
                self._announced["code"] = int(message["code"]) or 1
                self._said = bool(message.get("said"))
                self._acknowledged.set()
            if hub.ended:
                if self._announced is None and not self._closed.is_set():
                    self._end({"reason": DIED, "code": 1, "rank": 0, "node": hub.node}, aloud=self._rank == 1)
                self._acknowledged.set()
                return

    def _watch_as_hub(self) -> None:
        leave_at = float("inf")
        while not self._closed.is_set():
            if self._connections.turn(min(1.0, max(0.0, leave_at - time.monotonic()))):
                leave_at = time.monotonic() + LAST_WORDS_S
                if self._ending is not None:
                    self._end(self._ending)
            if time.monotonic() >= leave_at:
                self._leave_at_exit()
            self._check_parent()

    def _hear(self, peer: Lines, message: dict[str, Any]) -> None:
        """On rank 0, handle a message from another rank."""
        if message["kind"] == "bye":
            peer.said_goodbye = True
            self._all_stay = False
        elif message["kind"] == "abort":
            # Bad input and signals often reach all ranks at once; then each ends by itself, with its own message.
            if self._failing.wait(OTHERS_FIRST_S):
                peer.said_goodbye = True
                peer.send({**message, "said": self._said, "code": self._code})
            else:
                self._end(message, peer)
        elif message["kind"] != "written":
            self.on_message(message)

    def _miss(self, ended: list[Lines]) -> None:
        """On rank 0, handle the end of other ranks' connections."""
        lost = [{"rank": peer.rank, "node": peer.node} for peer in ended if not peer.said_goodbye]
        if lost and self._announced is None:
            self._end({"kind": "abort", "code": 1, **died(lost)})

    def _end(self, message: dict[str, Any], origin: Lines | None = None, aloud: bool | None = None) -> NoReturn:
        """End this process because of another: first write what must be written, then notify the others, then leave."""
        told = message["reason"] if message["rank"] is None else f"{sender(message)}: {message['reason']}"
        self._reason = " ".join(told.split())
        self.cause, self.signal = str(message.get("cause") or LOST), message.get("signal")
        self._received.set()
        if aloud if aloud is not None else self._rank == 0:
            self._say(self._reason)
            message["said"] = True
        if self.on_abort is not None:
            within(ON_ABORT_S, partial(self.on_abort, self._reason))
        if self._rank == 0:
            alone = not self._end_others(message, origin)
            if origin is not None:
                origin.send(message)
                origin.wait_for_end(LAST_WORDS_S)
        else:
            alone = not self._wait_for_rank_0()
        leave(int(message["code"]) or 1, alone=alone)

    def _sender(self) -> dict[str, Any]:
        return {"rank": self._rank, "node": self._node}

    def _say(self, reason: str) -> None:
        print_line(f"{self._program}: aborted: {' '.join(reason.split())}")

    def _end_others(self, message: dict[str, Any], origin: Lines | None = None) -> bool:
        """Notify the others, and wait until all have recorded why: under MPI the first to leave kills the others.

        Returns whether all end by themselves.
        """
        others = [peer for peer in self._connections.peers if peer is not origin]
        for peer in others:
            peer.send(message)
        deadline = time.monotonic() + LAST_WORDS_S
        ended = [peer.wait_for_end(deadline - time.monotonic(), or_for="written") for peer in others]
        return all(ended) and self._all_stay and self._connections.met == self._world_size - 1

    def _wait_for_rank_0(self) -> bool:
        """On a rank that has recorded why it ends: whether rank 0 then leaves, as it does when all have written."""
        hub = self._connections.hub
        if hub.ended:
            time.sleep(OTHERS_FIRST_S)  # in which the others write
            return False
        hub.send({"kind": "written"})
        return hub.wait_for_end(3 * LAST_WORDS_S)

    def _check_parent(self) -> None:
        """End a rank that another process started on this machine if that process was killed."""
        if self._parent is not None and os.getppid() != self._parent:
            self._end({"kind": "abort", "reason": PARENT_DIED, "code": 1, **self._sender()})
