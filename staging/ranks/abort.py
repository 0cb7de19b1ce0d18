"""One rank fails, all ranks end: what one finds goes to rank 0 and from there to the others, and so does a death.

Without this the others wait in a collective operation until its time-out, or for ever. An error is announced to rank 0,
which writes the end of the run into its log and passes the word on. A killed process announces nothing, but its
connection ends without a farewell, and rank 0's likewise, so that death is noticed at once and never suspected wrongly,
as heartbeats would when a process is only busy.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

from staging.errors import EveryRankError, InputError
from staging.ranks.connections import Connections, Peers
from staging.ranks.ending import DIED, PARENT_DIED, exit_code_of, leave, sender
from staging.ranks.messages import Lines
from staging.ranks.signals import Interrupted

OTHERS_FIRST_S = 0.5
"""How long an unexpected error waits for word from elsewhere: a broken collective is a result, not the cause."""

LAST_WORDS_S = 2.0
"""How long the rank that failed may take to print its error before the others end (and a launcher kills it)."""

ACKNOWLEDGE_S = 10.0
"""How long a failing rank waits for rank 0 to have written the end of the run."""


class AbortWatcher:
    """While entered, an exception on one rank, or the death of one, ends all ranks with a non-zero exit code.

    ``on_abort(reason)`` is called on every rank that is ended from elsewhere, in the watcher's thread, while the main
    thread may hang in a collective operation. An exception that leaves the ``with`` block goes on its way after rank 0
    knows of it, at once if all ranks have it (``EveryRankError``). With one process nothing happens. May be made before
    the main work; ``on_abort`` may be set later. Bad input that one rank finds is said by rank 0, and its ``speaks``
    becomes false, so that one line is printed. ``program`` stands before that line, and ``node`` is the name of this
    rank's node in it; ``with_parent`` ends the ranks too when the process that started this one dies.
    """

    def __init__(
        self,
        group: Peers,
        on_abort: Callable[[str], None] | None = None,
        *,
        program: str,
        node: str = "",
        with_parent: bool = False,
    ) -> None:
        self.on_abort = on_abort
        self._program = program
        self._node = node
        self._rank = group.rank
        self._world_size = group.world_size
        self._reason: str | None = None
        self._announced: dict[str, Any] | None = None
        self._said = False
        self._received = threading.Event()
        self._acknowledged = threading.Event()
        self._closed = threading.Event()
        self._failing = threading.Event()
        self._parent = os.getppid() if with_parent else None
        self._connections = Connections()
        if self._world_size > 1:
            self._connections.meet(group, node, self._hear, self._miss)

    def __enter__(self) -> AbortWatcher:
        if self._world_size > 1:
            target = self._watch_as_hub if self._rank == 0 else self._watch_as_client
            threading.Thread(target=target, name="abort-watcher", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._world_size == 1:
            return
        if error is None or isinstance(error, EveryRankError) or (isinstance(error, SystemExit) and not error.code):
            self._say_goodbye()
            return
        reason = f"{type(error).__name__}: {error}"
        if self._rank == 0 and isinstance(error, InputError | Interrupted) and self._reason is None:
            self._say(f"{sender(self._sender())}: {reason}")
            self._said = True
        self._failing.set()
        told = isinstance(error, InputError | KeyboardInterrupt | SystemExit) or hasattr(error, "exit_code")
        if self.reason_from_elsewhere(0 if told else OTHERS_FIRST_S) is not None:
            # The watcher's thread ends this process as soon as the reason is written.
            time.sleep(ACKNOWLEDGE_S)
        self.announce(reason, exit_code_of(error))
        if self._said and isinstance(error, InputError | Interrupted):
            error.speaks = False

    def reason_from_elsewhere(self, wait_s: float = 0.0) -> str | None:
        """Why another rank ended the run, if it did, waiting up to ``wait_s`` for the word."""
        return self._reason if self._received.wait(wait_s) else None

    def announce(self, reason: str, exit_code: int = 1) -> None:
        """End all other ranks because of ``reason``; returns once rank 0 has been told and has written its log.

        The calling process goes on, to print its error, and ends with ``exit_code`` when the interpreter exits.
        """
        if self._world_size == 1 or self._announced is not None:
            return
        message = {"kind": "abort", "reason": reason, "code": exit_code or 1, "said": self._said}
        self._announced = message | self._sender()
        atexit.register(self._leave_at_exit)
        if self._rank == 0:
            self._connections.wake()
            return
        with contextlib.suppress(OSError):
            self._connections.hub.send(self._announced)
            self._acknowledged.wait(ACKNOWLEDGE_S)

    def end_all(self, error: BaseException) -> NoReturn:
        """End all ranks, this one too, for an error in a thread beside the main one, which may hang."""
        reason, code = f"{type(error).__name__}: {error}", exit_code_of(error)
        if self._rank == 0:
            self._end({"kind": "abort", "reason": reason, "code": code, **self._sender()})
        self.announce(reason, code)
        leave(code)

    def _leave_at_exit(self) -> None:
        assert self._announced is not None
        if self._rank == 0:
            self._end_others(self._announced)
        leave(self._announced["code"])

    def _say_goodbye(self) -> None:
        self._closed.set()
        self._connections.tell_all({"kind": "bye"})

    def _watch_as_client(self) -> None:
        hub = self._connections.hub
        while True:
            self._connections.wait(1.0)
            self._check_parent()
            for message in hub.receive():
                if message["kind"] == "bye":
                    return
                if self._announced is None:
                    self._end(message)
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
            if time.monotonic() >= leave_at:
                self._leave_at_exit()
            self._check_parent()

    def _hear(self, peer: Lines, message: dict[str, Any]) -> None:
        """On rank 0, what another says."""
        if message["kind"] == "bye":
            peer.said_goodbye = True
        elif message["kind"] == "abort":
            # Bad input and signals often meet all ranks at once; then each ends by itself, with its own words.
            if self._failing.wait(OTHERS_FIRST_S):
                peer.said_goodbye = True
                peer.send({**message, "said": self._said})
            else:
                self._end(message, peer)

    def _miss(self, peer: Lines) -> None:
        """On rank 0, another's connection has ended."""
        if not peer.said_goodbye and self._announced is None:
            self._end({"kind": "abort", "reason": DIED, "code": 1, "rank": peer.rank, "node": peer.node})

    def _end(self, message: dict[str, Any], origin: Lines | None = None, aloud: bool | None = None) -> NoReturn:
        """End this process because of another: first what must be written, then the word to others, then leave."""
        self._reason = " ".join(f"{sender(message)}: {message['reason']}".split())
        self._received.set()
        if aloud if aloud is not None else self._rank == 0:
            self._say(self._reason)
            message["said"] = True
        if self.on_abort is not None:
            with contextlib.suppress(Exception):
                self.on_abort(self._reason)
        if self._rank == 0:
            self._end_others(message, origin)
            if origin is not None:
                origin.send(message)
                origin.wait_for_end(LAST_WORDS_S)
        else:
            self._wait_for_others()
        leave(int(message["code"]) or 1)

    def _sender(self) -> dict[str, Any]:
        return {"rank": self._rank, "node": self._node}

    def _say(self, reason: str) -> None:
        print(f"{self._program}: aborted: {' '.join(reason.split())}", file=sys.stderr, flush=True)

    def _end_others(self, message: dict[str, Any], origin: Lines | None = None) -> None:
        """Pass the word on, and wait until all have written down why: under MPI the first to leave kills the others."""
        others = [peer for peer in self._connections.peers if peer is not origin]
        for peer in others:
            peer.send(message)
        deadline = time.monotonic() + LAST_WORDS_S
        for peer in others:
            peer.wait_for_end(deadline - time.monotonic(), or_for="written")

    def _wait_for_others(self) -> None:
        """On a rank that has written down why it ends: leave after rank 0, or after the others had time to write."""
        hub = self._connections.hub
        if hub.ended:
            time.sleep(OTHERS_FIRST_S)
            return
        hub.send({"kind": "written"})
        hub.wait_for_end(2 * LAST_WORDS_S)

    def _check_parent(self) -> None:
        """A rank that another process started on this machine ends when that was killed."""
        if self._parent is not None and os.getppid() != self._parent:
            self._end({"kind": "abort", "reason": PARENT_DIED, "code": 1, **self._sender()})
