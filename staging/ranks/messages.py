"""Messages over a socket, one JSON object per line."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from staging.errors import InputError
from staging.ranks.readable import is_readable

KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A node that loses power sends no farewell; silence for half a minute then ends the connection."""


class Lines:
    """One end of a connection. ``rank`` on ``node`` is the other end, once it has said so; ``ended``: it is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.rank: int | None = None
        self.node = ""
        self.said_goodbye = False
        self.ended = False
        self.kinds: set[str] = set()
        """Kinds of the messages that have arrived, whichever thread took them."""
        self._buffer = b""
        self._lock, self._receiving = threading.Lock(), threading.Lock()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message; a message to a peer that is gone is dropped."""
        with self._lock, contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]]:
        """The messages that have arrived, without waiting."""
        with self._receiving:
            messages = self._read()
        self.kinds |= {message["kind"] for message in messages}
        return messages

    def _read(self) -> list[dict[str, Any]]:
        while not self.ended and is_readable(self.socket.fileno(), 0):
            try:
                data = self.socket.recv(65536)
            except OSError:
                data = b""
            self.ended = not data
            self._buffer += data
        *complete, self._buffer = self._buffer.split(b"\n")
        messages = []
        for line in complete:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                if isinstance(message, dict) and "kind" in message:
                    messages.append(message)
        return messages

    def wait_for_end(self, seconds: float, or_for: str = "") -> bool:
        """Whether the other end is gone, or has sent a message of the kind ``or_for``, within ``seconds``."""
        deadline = time.monotonic() + seconds
        while not self.ended and time.monotonic() < deadline:
            is_readable(self.socket.fileno(), max(0.0, min(0.1, deadline - time.monotonic())))
            self.receive()
            if or_for in self.kinds:
                return True
        return self.ended or or_for in self.kinds


def connect_first(
    addresses: list[str], port: int, timeout_s: float = 30.0, check: Callable[[], None] = lambda: None
) -> socket.socket:
    """Connect to the first of ``addresses`` that answers. Raises ``InputError`` if none does in time.

    ``check`` is called repeatedly while none answers, and may raise.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        check()
        for address in addresses:
            try:
                connection = socket.create_connection((address, port), timeout=2)
            except OSError:
                continue
            connection.settimeout(None)
            return connection
        time.sleep(0.1)
    raise InputError(
        f"no answer at {' or '.join(addresses)}, port {port}, within {timeout_s:g} s; "
        "see that rank 0 runs and that ports are open between the nodes, or set MASTER_ADDR and MASTER_PORT"
    )
