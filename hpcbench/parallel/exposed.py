"""Recorders of the messages that a step waits for; what computation does not hide is exposed communication.

Everything in this package that sends messages in a step takes a ``Recorder``; the default one records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from torch import Tensor

from hpcbench.parallel.peers import Message, Peers

Arrivals = Callable[[Tensor], Tensor]
"""Maps this rank's times of arrival, (messages,), in float64 on the host, to those of all members of a channel by
place, (members, messages); where all wait for all, to the latest only, (1, messages). Collective among the members."""


class Channel(Protocol):
    """The messages of one kind among some ranks, all of which send them in the same order."""

    def message(self, members: Collection[int] | None = None) -> AbstractContextManager[None]:
        """Note that this rank arrives at its next message; entered as often as needed while the step waits for it.

        ``members`` are the places of the ranks that exchange it with this one, if these are not all.
        """
        ...


class Recorder(Protocol):
    """Records the messages of a rank."""

    def channel(self, kind: str, arrivals: Arrivals, *, on_host: bool = False) -> Channel:
        """A channel for messages of a kind in ``phase_names.py``; all of its members make one.

        ``on_host``: the host itself waits for these messages, even if there is an accelerator.
        """
        ...


class Unrecorded:
    """Records nothing."""

    def channel(self, kind: str, arrivals: Arrivals, *, on_host: bool = False) -> Channel:
        """As in ``Recorder``."""
        return self

    def message(self, members: Collection[int] | None = None) -> AbstractContextManager[None]:
        """As in ``Channel``."""
        return nullcontext()


UNRECORDED = Unrecorded()


def recorded(peers: Peers, recorder: Recorder, kind: str) -> Peers:
    """``peers`` with their messages reported to ``recorder`` as ``kind``, even if they already record another kind."""
    if recorder is UNRECORDED:
        return peers
    return RecordedPeers(peers.peers if isinstance(peers, RecordedPeers) else peers, recorder, kind)


class RecordedPeers:
    """Peers that report their messages to a recorder."""

    def __init__(self, peers: Peers, recorder: Recorder, kind: str) -> None:
        self.peers = peers
        self.rank, self.size = peers.rank, peers.size
        self.channel = recorder.channel(kind, peers.stacked)

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """As in ``Peers``."""
        message = self.channel.message({other for other, _ in (*sends, *receives)})
        with message:  # what fits into the connections is sent at once
            wait = self.peers.start(sends, receives)

        def finish() -> None:
            with message:
                wait()

        return finish

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """As in ``Peers``."""
        with self.channel.message():
            return self.peers.all_reduce(tensor)

    def stacked(self, local: Tensor) -> Tensor:
        """As in ``Peers``."""
        with self.channel.message():
            return self.peers.stacked(local)
