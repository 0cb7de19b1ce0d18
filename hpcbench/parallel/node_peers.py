"""Processes of one node exchange host tensors over Unix sockets, and poll for an answer before they sleep.

A step of a split model meets its peers hundreds of times, milliseconds apart. With gloo each meeting waits for
sleeping threads to wake up; here it takes as long as the slower rank (``benchmarks/spatial.py`` measures both).
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hpcbench.parallel.group import Group
from hpcbench.parallel.peers import Message, Peers, ProcessPeers

LOOK_S = 0.01
"""How long a rank polls for an answer before it sleeps until there is one."""
BUFFER_BYTES = 4 * 2**20
"""What a connection may hold in flight; the system may allow less."""
NUMBER_BYTES = 4
MEETING_S = 60.0


def open_peers(processes: Any, group: Group, timeout_s: float) -> Peers:
    """The fastest kind of peers for the ranks of ``processes``, a part of ``group``; collective among them.

    These are processes of ``torch.distributed`` unless tensors are on the host and all ranks can connect.
    """
    plain = ProcessPeers(processes)
    if plain.size == 1:
        return plain
    if group.device.type != "cpu":
        # The first message of a group of NCCL must be one of all its ranks, and halos may be of some.
        plain.all_reduce(torch.zeros(1, device=group.device))
        return plain
    connections = connect_all(plain)
    if connections is None:
        return plain
    # More ranks than cores would keep each other from working by polling.
    look_s = LOOK_S if group.launch.local_size <= (os.cpu_count() or 1) else 0.0
    return NodePeers(plain.rank, connections, timeout_s, look_s)


def connect_all(peers: ProcessPeers) -> dict[int, socket.socket] | None:
    """A connection to every other place among ``peers``; ``None`` if one cannot be reached, as on another node."""
    with ExitStack() as ending:
        connections: dict[int, socket.socket] = {}
        failed = False
        path, listener = "", ending.enter_context(socket.socket(socket.AF_UNIX))
        listener.settimeout(MEETING_S)
        try:
            folder = tempfile.mkdtemp(prefix="hpcbench-")
            ending.callback(shutil.rmtree, folder, ignore_errors=True)
            path = str(Path(folder) / "peer")
            listener.bind(path)
            listener.listen(peers.size)
        except OSError:
            failed = True
        paths = _all_of(peers, path)
        for other in range(peers.rank):
            connections[other] = socket.socket(socket.AF_UNIX)
            connections[other].settimeout(MEETING_S)
            try:
                connections[other].connect(paths[other])
                connections[other].sendall(peers.rank.to_bytes(NUMBER_BYTES, "big"))
            except OSError:
                failed = True
        if any(_all_of(peers, failed)):
            for connection in connections.values():
                connection.close()
            return None
        for _ in range(peers.rank + 1, peers.size):
            connection, _ = listener.accept()
            connection.settimeout(MEETING_S)
            connections[int.from_bytes(connection.recv(NUMBER_BYTES, socket.MSG_WAITALL), "big")] = connection
        return connections


def _all_of(peers: ProcessPeers, value: Any) -> list[Any]:
    values: list[Any] = [None] * peers.size
    dist.all_gather_object(values, value, group=peers.processes)
    return values


class NodePeers:
    """Ranks with a connection to each other, which implement ``hpcbench.parallel.peers.Peers``.

    Sums are added in the order of places, so that all ranks get bit-identical results. If nothing has moved for
    ``timeout_s``, or a rank has gone, waiting raises ``RuntimeError``, as collectives of ``torch.distributed`` do.
    """

    def __init__(
        self, rank: int, connections: dict[int, socket.socket], timeout_s: float = 1800, look_s: float = LOOK_S
    ) -> None:
        self.rank, self.size = rank, len(connections) + 1
        self.timeout_s, self.look_s = timeout_s, look_s
        self._lines = {other: _Line(other, connection) for other, connection in sorted(connections.items())}

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As in ``Peers``; what fits into the connections is sent at once, the rest while waiting."""
        for other, part in sends:
            self._lines[other].outgoing.extend(_bytes(part))
        for other, room in receives:
            self._lines[other].incoming.extend(_bytes(room))
        lines = [self._lines[other] for other in {other for other, _ in (*sends, *receives)}]
        for line in lines:
            line.advance()
        return lambda: self._wait(lines)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """As in ``Peers``."""
        total: Tensor | None = None
        for part in self._everyone(tensor.reshape(-1)):
            total = part.clone() if total is None else total.add_(part)
        assert total is not None
        return tensor.copy_(total.view(tensor.shape))

    def stacked(self, local: Tensor) -> Tensor:
        """As in ``Peers``."""
        return torch.stack(self._everyone(local))

    def close(self) -> None:
        """Close the connections; ranks that wait for this one notice."""
        for line in self._lines.values():
            line.connection.close()

    def _everyone(self, local: Tensor) -> list[Tensor]:
        """``local`` of all ranks, by place."""
        local = local.detach().contiguous()
        parts = [local if other == self.rank else torch.empty_like(local) for other in range(self.size)]
        self.start([(other, local) for other in self._lines], [(other, parts[other]) for other in self._lines])()
        return parts

    def _wait(self, lines: Sequence[_Line]) -> None:
        """Return when nothing of ``lines`` is in flight; the other side may already have sent more."""
        moved = time.perf_counter()
        while waiting := [line for line in lines if line.outgoing or line.incoming]:
            if sum(line.advance() for line in waiting):
                moved = time.perf_counter()
                continue
            idle = time.perf_counter() - moved
            if idle < self.look_s:
                os.sched_yield()
            elif idle < self.timeout_s:
                _sleep(waiting, self.timeout_s - idle)
            else:
                others = ", ".join(str(line.other) for line in waiting)
                raise RuntimeError(
                    f"place {self.rank} of {self.size} peers waited {self.timeout_s:g} s for place {others}"
                )


class _Line:
    """What goes to one other rank and what comes from it, each in order."""

    def __init__(self, other: int, connection: socket.socket) -> None:
        self.other, self.connection = other, connection
        self.outgoing: deque[memoryview] = deque()
        self.incoming: deque[memoryview] = deque()
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)

    def advance(self) -> bool:
        """Send and receive what is possible now; returns whether anything moved."""
        try:
            sent = _move(self.outgoing, self.connection.send)
            return _move(self.incoming, self._receive) or sent
        except OSError as error:
            raise RuntimeError(f"place {self.other} of the peers has gone ({error.strerror})") from error

    def _receive(self, room: memoryview) -> int:
        count = self.connection.recv_into(room)
        if count == 0:
            raise ConnectionResetError(0, "it closed the connection")
        return count


def _move(queue: deque[memoryview], some: Callable[[memoryview], int]) -> bool:
    """Pass the front of ``queue`` to ``some``, which takes a part of it, for as long as that does not block."""
    moved = False
    with suppress(BlockingIOError):
        while queue:
            count = some(queue[0])
            moved = True
            if count == len(queue[0]):
                queue.popleft()
            else:
                queue[0] = queue[0][count:]
    return moved


def _sleep(lines: Sequence[_Line], timeout_s: float) -> None:
    """Sleep until one of ``lines`` can move."""
    poll = select.poll()
    for line in lines:
        wanted = (select.POLLIN if line.incoming else 0) | (select.POLLOUT if line.outgoing else 0)
        poll.register(line.connection, wanted)
    poll.poll(timeout_s * 1000)


def _bytes(tensor: Tensor) -> list[memoryview]:
    """The memory of a contiguous tensor, unless it has none."""
    return [tensor.detach().view(-1).view(torch.uint8).numpy().data] if tensor.numel() else []
