"""Every rank holds a connection to rank 0, which the kernel closes when a process dies."""

from __future__ import annotations

import os
import resource
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from staging.errors import EveryRankError
from staging.ranks.messages import Lines, connect_first
from staging.ranks.world import this_node

MEETING_S = 30.0
"""How long rank 0 waits for the connections of the others before the work begins."""
SPARE_FILES, LEAST_SPARE_FILES = 256, 32
"""How many files rank 0 may open beside its connections, if the system lets it, and how many it needs."""

T = TypeVar("T")


class Peers(Protocol):
    """The ranks that end together, and the few operations they need before they are connected."""

    rank: int
    world_size: int

    def addresses(self) -> list[str]:
        """Addresses at which the other ranks may reach this host, best first."""

    def broadcast_object(self, value: T) -> T:
        """The value of rank 0."""

    def barrier(self) -> None:
        """Wait for all ranks."""


class Connections:
    """Rank 0's connections to all others, or another rank's connection to rank 0; none until ``meet``."""

    def __init__(self) -> None:
        self.peers: list[Lines] = []
        self.met = 0
        """How many other ranks rank 0 has met, whether gone or not."""
        self._selector = selectors.DefaultSelector()
        self._listener: socket.socket | None = None
        self._token = ""

    @property
    def hub(self) -> Lines:
        """The connection to rank 0, on another rank."""
        return self.peers[0]

    def meet(
        self,
        group: Peers,
        node: str,
        hear: Callable[[Lines, dict[str, Any]], None],
        miss: Callable[[list[Lines]], None],
    ) -> None:
        """Connect all ranks of ``group``; ``node`` is the name of this rank's node. Collective.

        On rank 0 ``turn`` calls ``hear`` with a rank's messages, and ``miss`` with ranks whose connections have ended.
        Raises ``EveryRankError`` if rank 0 may not open so many connections.
        """
        self._hear, self._miss = hear, miss
        if group.rank == 0:
            self._listen(group, node)
        else:
            self._connect(group, node)
        # A reader process that outlives its killed rank must not hold the connection open.
        os.register_at_fork(after_in_child=self._forget)
        group.barrier()

    def turn(self, wait_s: float) -> bool:
        """On rank 0, handle what arrives within ``wait_s`` seconds; returns whether ``wake`` was called."""
        woken, ended = False, list[Lines]()
        while ready := self._selector.select(timeout=0 if ended else wait_s):
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._add(Lines(self._listener.accept()[0]))
                elif isinstance(key.data, Lines):
                    self._take_turn(key.data, ended)
                else:
                    woken |= bool(key.data.recv(1))
            if not ended:
                break
        # A death ends others within a moment, and nobody can tell which was first; what a rank said comes before.
        if ended:
            self._miss(ended)
        return woken

    def wake(self) -> None:
        """On rank 0, end the wait of ``turn`` from another thread."""
        self._wake.send(b"!")

    def wait(self, wait_s: float) -> None:
        """On another rank, wait for a message from rank 0, at most ``wait_s`` seconds."""
        self._selector.select(timeout=wait_s)

    def tell_all(self, message: dict[str, Any]) -> None:
        """Send ``message`` along all connections."""
        for peer in list(self.peers):
            peer.send(message)

    def _listen(self, group: Peers, node: str) -> None:
        if problem := allow_files(group.world_size, node or this_node()):
            group.broadcast_object(([""], 0, "", "", problem))
            raise EveryRankError(problem, speaks=True)
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server(("", 0), backlog=group.world_size)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, wakened = socket.socketpair()
        self._selector.register(wakened, selectors.EVENT_READ, wakened)
        port = self._listener.getsockname()[1]
        group.broadcast_object((group.addresses(), port, self._token, node, ""))
        # Only a connected rank can be told why the run ended.
        deadline = time.monotonic() + MEETING_S
        while self.met < group.world_size - 1 and time.monotonic() < deadline:
            self.turn(1.0)

    def _connect(self, group: Peers, node: str) -> None:
        addresses, port, token, node_of_hub, problem = group.broadcast_object(([""], 0, "", "", ""))
        if problem:
            raise EveryRankError(problem, speaks=False)
        hub = Lines(connect_first(addresses, port))
        hub.send({"kind": "hello", "rank": group.rank, "node": node, "token": token})
        hub.rank, hub.node = 0, node_of_hub
        self._add(hub)

    def _take_turn(self, peer: Lines, ended: list[Lines]) -> None:
        for message in peer.receive():
            if message["kind"] == "hello" and secrets.compare_digest(str(message.get("token")), self._token):
                peer.rank, peer.node = int(message["rank"]), str(message["node"])
                self.met += 1
            elif peer.rank is not None:
                self._hear(peer, message)
        if peer.ended:
            self._selector.unregister(peer.socket)
            self.peers.remove(peer)
            if peer.rank is not None:
                ended.append(peer)

    def _add(self, peer: Lines) -> None:
        self.peers.append(peer)
        self._selector.register(peer.socket, selectors.EVENT_READ, peer)

    def _forget(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for peer in self.peers:
            peer.socket.close()


def allow_files(connections: int, node: str) -> str:
    """Let this process open so many connections beside what it has open; returns why it may not, or an empty text."""
    import psutil

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files = psutil.Process().num_fds() + connections
    if resource.RLIM_INFINITY != hard < open_files + LEAST_SPARE_FILES:
        return (
            f"a process on {node} may open {hard} files, where one that {connections} ranks watch needs "
            f"{open_files + LEAST_SPARE_FILES}; raise the hard limit (ulimit -Hn), or start fewer ranks"
        )
    if resource.RLIM_INFINITY != soft < open_files + SPARE_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return ""
