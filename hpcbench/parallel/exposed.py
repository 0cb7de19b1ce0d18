"""Who is told of the messages that a step waits for: what computation does not hide of them is exposed communication.

Everything in this package that sends in a step takes a ``Recorder``, and by default one that records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor

from hpcbench.parallel.peers import Message, Peers

Arrivals = Callable[[Tensor], Tensor]
"""Times of arrival (messages,) of this rank, in float64 on the host, to those of all members of a channel by place,
(members, messages), or where all wait for all to the latest alone, (1, messages). Collective among the members."""


class Channel(Protocol):
    """The messages of one kind among some ranks; all of them send there in the same order."""

    def message(self, members: Collection[int] | None = None) -> AbstractContextManager[None]:
        """Note that this rank arrives at its next message; entered, as often as needed, while the step waits for it.

        ``members`` are the places of those that it is exchanged with, where these are not all.
        """
        ...


class Recorder(Protocol):
    """Is told of the messages of a rank."""

    def channel(self, kind: str, arrivals: Arrivals, *, on_host: bool = False) -> Channel:
        """A channel for messages of a kind of ``phase_names.py``; all of its members make one.

        ``on_host``: the host itself waits for these messages, also where there is an accelerator.
        """
        ...


class Unrecorded:
    """Records nothing."""

    def channel(self, kind: str, arrivals: Arrivals, *, on_host: bool = False) -> Channel:
        """As of ``Recorder``."""
        return self

    def message(self, members: Collection[int] | None = None) -> AbstractContextManager[None]:
        """As of ``Channel``."""
        return nullcontext()


UNRECORDED = Unrecorded()


def recorded(peers: Peers, recorder: Recorder, kind: str) -> Peers:
    """``peers``, whose messages are told to ``recorder`` as of ``kind``, even where others of theirs are of another."""
    if recorder is UNRECORDED:
        return peers
    return RecordedPeers(peers.peers if isinstance(peers, RecordedPeers) else peers, recorder, kind)


class RecordedPeers:
    """Peers whose messages are told to a recorder."""

    def __init__(self, peers: Peers, recorder: Recorder, kind: str) -> None:
        self.peers = peers
        self.rank, self.size = peers.rank, peers.size
        self.channel = recorder.channel(kind, peers.stacked)

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As of ``Peers``."""
        message = self.channel.message({other for other, _ in (*sends, *receives)})
        with message:  # what fits into the connections is sent at once
            wait = self.peers.start(sends, receives)

        def finish() -> None:
            with message:
                wait()

        return finish

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """As of ``Peers``."""
        with self.channel.message():
            return self.peers.all_reduce(tensor)

    def stacked(self, own: Tensor) -> Tensor:
        """As of ``Peers``."""
        with self.channel.message():
            return self.peers.stacked(own)
