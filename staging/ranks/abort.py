"""One rank fails, all ranks end: every rank holds a connection to rank 0, and the kernel closes it when a process dies.

Without this the others wait in a collective operation until its time-out, or for ever. An error is announced to rank 0,
which writes the end of the run into its log and passes the word on. A killed process announces nothing, but its
connection ends without a farewell, and rank 0's likewise, so that death is noticed at once and never suspected wrongly,
as heartbeats would when a process is only busy.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeVar

from staging.errors import EveryRankError, InputError
from staging.ranks.messages import Lines, connect_first
from staging.ranks.mpi import abort_mpi
from staging.ranks.signals import Interrupted

OTHERS_FIRST_S = 0.5
"""How long an unexpected error waits for word from elsewhere: a broken collective is a result, not the cause."""

LAST_WORDS_S = 2.0
"""How long the rank that failed may take to print its error before the others end (and a launcher kills it)."""

MEETING_S = 30.0
"""How long rank 0 waits for the connections of the others before the work begins."""

ACKNOWLEDGE_S = 10.0
"""How long a failing rank waits for rank 0 to have written the end of the run."""

DIED = "the process died without a word (killed, out of memory, or its node was lost)"
PARENT_DIED = "the process that started the ranks died"


T = TypeVar("T")


class Peers(Protocol):
    """The ranks that end together, and the little that they say to each other before they can."""

    rank: int
    world_size: int

    def addresses(self) -> list[str]:
        """Addresses at which the other ranks may reach this host, best first."""

    def broadcast_object(self, value: T) -> T:
        """The value of rank 0."""

    def barrier(self) -> None:
        """Wait for all ranks."""


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
        self._selector = selectors.DefaultSelector()
        self._peers: list[Lines] = []
        if self._world_size == 1:
            return
        if self._rank == 0:
            self._listen(group)
        else:
            self._connect(group)
        # A reader process that outlives its killed rank must not hold the connection open.
        os.register_at_fork(after_in_child=self._forget)
        group.barrier()

    def _listen(self, group: Peers) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if soft < group.world_size + 256 else soft, hard))
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server(("", 0), backlog=group.world_size)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, wakened = socket.socketpair()
        self._selector.register(wakened, selectors.EVENT_READ, wakened)
        port = self._listener.getsockname()[1]
        group.broadcast_object((group.addresses(), port, self._token, self._node))
        # Only who is connected can be told why the run ended.
        deadline = time.monotonic() + MEETING_S
        while self._known() < group.world_size - 1 and time.monotonic() < deadline:
            self._turn(1.0)

    def _connect(self, group: Peers) -> None:
        addresses, port, token, node = group.broadcast_object(([""], 0, "", ""))
        hub = Lines(connect_first(addresses, port))
        hub.send({"kind": "hello", "rank": self._rank, "node": self._node, "token": token})
        hub.rank, hub.node = 0, node
        self._add(hub)

    def _forget(self) -> None:
        if self._rank == 0:
            self._listener.close()
        for peer in self._peers:
            peer.socket.close()

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
            self._wake.send(b"!")
            return
        with contextlib.suppress(OSError):
            self._peers[0].send(self._announced)
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
        self._tell_all({"kind": "bye"})

    def _watch_as_client(self) -> None:
        hub = self._peers[0]
        while True:
            self._selector.select(timeout=1.0)
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
            if self._turn(min(1.0, max(0.0, leave_at - time.monotonic()))):
                leave_at = time.monotonic() + LAST_WORDS_S
            if time.monotonic() >= leave_at:
                self._leave_at_exit()
            self._check_parent()

    def _turn(self, wait_s: float) -> bool:
        """Handle what comes within ``wait_s`` seconds; whether the main thread said that this rank fails."""
        failing = False
        for key, _ in self._selector.select(timeout=wait_s):
            if key.fileobj is self._listener:
                self._add(Lines(self._listener.accept()[0]))
            elif isinstance(key.data, Lines):
                self._hear(key.data)
            else:
                failing = bool(key.data.recv(1))
        return failing

    def _known(self) -> int:
        return sum(peer.rank is not None for peer in self._peers)

    def _hear(self, peer: Lines) -> None:
        for message in peer.receive():
            if message["kind"] == "hello" and secrets.compare_digest(str(message.get("token")), self._token):
                peer.rank, peer.node = int(message["rank"]), str(message["node"])
            elif peer.rank is not None and message["kind"] == "bye":
                peer.said_goodbye = True
            elif peer.rank is not None and message["kind"] == "abort":
                # Bad input and signals often meet all ranks at once; then each ends by itself, with its own words.
                if self._failing.wait(OTHERS_FIRST_S):
                    peer.said_goodbye = True
                    peer.send({**message, "said": self._said})
                else:
                    self._end(message, peer)
        if peer.ended:
            self._selector.unregister(peer.socket)
            self._peers.remove(peer)
            if peer.rank is not None and not peer.said_goodbye and self._announced is None:
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
        others = [peer for peer in self._peers if peer is not origin]
        for peer in others:
            peer.send(message)
        deadline = time.monotonic() + LAST_WORDS_S
        for peer in others:
            peer.wait_for_end(deadline - time.monotonic(), or_for="written")

    def _wait_for_others(self) -> None:
        """On a rank that has written down why it ends: leave after rank 0, or after the others had time to write."""
        hub = self._peers[0]
        if hub.ended:
            time.sleep(OTHERS_FIRST_S)
            return
        hub.send({"kind": "written"})
        hub.wait_for_end(2 * LAST_WORDS_S)

    def _tell_all(self, message: dict[str, Any]) -> None:
        for peer in list(self._peers):
            peer.send(message)

    def _add(self, peer: Lines) -> None:
        self._peers.append(peer)
        self._selector.register(peer.socket, selectors.EVENT_READ, peer)

    def _check_parent(self) -> None:
        """A rank that another process started on this machine ends when that was killed."""
        if self._parent is not None and os.getppid() != self._parent:
            self._end({"kind": "abort", "reason": PARENT_DIED, "code": 1, **self._sender()})


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
