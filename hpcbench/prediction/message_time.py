"""Seconds of the messages of a step, from a characterisation: its counts and bytes, measured curves, what was hidden.

Messages of one kind take count x latency x log2 N / log2 N0 + bytes / rate x ((N - 1) / N) / ((N0 - 1) / N0) among N,
where their curve was measured among N0: nodes for what travels between nodes, ranks for what stays within one. An
exchange with neighbours does not grow with N. On another machine the rate is in proportion: between nodes to the
network of a node, over what all ranks of a node sent to others here (``roofline.node_bytes_per_s``); within a node to
the link between two ranks, over what an exchange reached here (without one, what a ring of the all-reduce sent). Where
a message of their mean size was sent alone, latency and rate are scaled to that.

The share that was hidden stays hidden while messages take no longer than the backward pass that hides them. Messages
that took longer than that already when they were measured hide as many seconds as they did; the rest is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpcbench.characterisation.model import Characterisation, Curve, Link, Message
from hpcbench.characterisation.roofline import curve_of, link_bytes, node_bytes_per_s
from hpcbench.prediction.step_time import StepCase

Floats = NDArray[np.float64]

BACKWARD = 2 / 3
"""Share of the backward pass in the device time: it has twice the operations of the forward pass."""


@dataclass(frozen=True)
class Sent:
    """The messages of one kind in a step, as they were measured."""

    kind: str
    link: Link
    count: int
    bytes: float
    """Bytes of all of them."""
    latency_s: float
    """Seconds of one message before its bytes."""
    bytes_per_s: float
    """Bytes over the time that grows with them."""
    link_bytes_per_s: float
    """What was sent over the link when it was measured: by a whole node to others, or by a rank within a node."""
    among: int
    """Nodes, or ranks within a node, of the curve."""
    grows: bool = True
    """Whether it takes longer among more; an exchange with neighbours does not."""
    fixed: bool = True
    """Whether the bytes are the same at any local batch."""
    exposed_s: float | None = None
    """Seconds that a step waited for them; unset where all of them are taken to be waited for."""

    def seconds(self, among: ArrayLike, batch_ratio: ArrayLike = 1.0, latency: ArrayLike = 1.0,
                rate: ArrayLike = 1.0) -> Floats:  # fmt: skip
        """Seconds of all of them, one after another, among that many nodes or ranks.

        ``batch_ratio`` is the local batch over the measured one; ``latency`` and ``rate`` are ratios to the measured.
        """
        hops: Floats = np.ones(())
        share: Floats = np.ones(())
        if self.grows:
            number = np.maximum(np.asarray(among, float), 1.0)
            hops = np.asarray(np.log2(number) / np.log2(self.among))
            share = np.asarray((number - 1) / number / ((self.among - 1) / self.among))
        size = self.bytes * (np.ones(()) if self.fixed else np.asarray(batch_ratio, float))
        waiting = self.count * self.latency_s * np.asarray(latency, float) * hops
        return np.asarray(waiting + size / (self.bytes_per_s * np.asarray(rate, float)) * share)


@dataclass(frozen=True)
class MessageTime:
    """All messages of a step."""

    messages: tuple[Sent, ...]
    local_batch: int
    """Local batch of the measured step."""
    device_s: float
    """Seconds of a pass on the fewest ranks of the characterisation."""

    @classmethod
    def of(cls, characterisation: Characterisation) -> MessageTime | None:
        """The messages of a characterisation; ``None`` where it has a single rank, or measured no curves or steps."""
        sent = [one for message in characterisation.messages if (one := sent_of(characterisation, message))]
        if not sent or not characterisation.steps:
            return None
        fewest = min(characterisation.steps, key=lambda step: step.ranks)
        return cls(tuple(sent), characterisation.local_batch, fewest.median_s)

    @property
    def link(self) -> Link:
        """The slowest link that any message crosses."""
        links = {sent.link for sent in self.messages}
        return "between nodes" if "between nodes" in links else "within a node"

    def covers(self, nodes: float) -> bool:
        """Whether the messages of a training on that many nodes were measured: between nodes, or within one."""
        return self.link == ("between nodes" if nodes > 1 else "within a node")

    def seconds(self, case: StepCase, latency: ArrayLike = 1.0) -> Floats:
        """Seconds of all messages of a step of a case, hidden or not; ``latency`` is a ratio to the measured one."""
        return np.asarray(sum(self.of_kind(sent, case, latency) for sent in self.messages))

    def exposed_s(self, case: StepCase, device_s: ArrayLike, latency: ArrayLike = 1.0) -> Floats:
        """Seconds that a step waits for messages; ``device_s``: of a pass, whose backward part hides them."""
        ratio = np.asarray(device_s, float) / self.device_s
        waited = []
        for sent in self.messages:
            whole, measured = self.of_kind(sent, case, latency), float(sent.seconds(sent.among))
            if sent.exposed_s is None or measured <= 0:
                waited.append(whole)
                continue
            hidden = 1 - sent.exposed_s / measured
            most = max(measured, BACKWARD * self.device_s) * ratio
            waited.append(whole - hidden * np.minimum(whole, most))
        return np.asarray(sum(waited))

    def of_kind(self, sent: Sent, case: StepCase, latency: ArrayLike) -> Floats:
        """Seconds of the messages of one kind in a step of a case, over the links of its machine."""
        between = sent.link == "between nodes"
        reached = case.network_bytes_per_s if between else case.link_bytes_per_s
        among, batch_ratio = case.nodes if between else case.devices, case.local_batch / self.local_batch
        return sent.seconds(among, batch_ratio, latency, reached / sent.link_bytes_per_s)


def sent_of(characterisation: Characterisation, message: Message) -> Sent | None:
    """The messages of one kind with their curve; ``None`` for a single rank, and where no curve was measured."""
    curve = curve_of(characterisation, message)
    if curve is None or curve.ranks < 2 or message.link == "none":
        return None
    between = message.link == "between nodes"
    among = curve.nodes if between else curve.ranks
    reached = node_bytes_per_s(characterisation) if between else rank_bytes_per_s(characterisation, curve)
    assert reached is not None
    fitted = message.count * curve.latency_s + message.bytes / curve.bytes_per_s
    slower = message.count * message.alone_s / fitted if message.alone_s and fitted > 0 else 1.0
    return Sent(
        message.kind, message.link, message.count, message.bytes, curve.latency_s * slower, curve.bytes_per_s / slower,
        reached, among, message.operation != "exchange", message.fixed, message.exposed_s,
    )  # fmt: skip


def rank_bytes_per_s(characterisation: Characterisation, curve: Curve) -> float:
    """The rate at which a rank sent to another of its node: by an exchange, or else by the ring of a sum's curve."""
    swaps = [other.bytes_per_s for other in characterisation.curves
             if (other.operation, other.link) == ("exchange", "within a node")]  # fmt: skip
    return max(swaps, default=curve.bytes_per_s * link_bytes(curve.operation, curve.ranks))
