"""The least time that each part of a machine needs for a step, by its own roof, and what the step attained of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcbench.characterisation.model import (
    COMPUTED_IN,
    PRODUCTS,
    SIXTEEN_BIT,
    TENSOR_FLOAT,
    Characterisation,
    Curve,
    Kernel,
    Kind,
    Message,
    Roof,
    total,
)

Part = Literal["compute", "memory", "input", "network"]
RING_PASSES = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
"""How often the bytes of a message go around a ring of ranks."""


@dataclass(frozen=True)
class Bound:
    """One part of the machine in a step of one rank."""

    part: Part
    roof: str
    """Which roof: a precision, ``memory``, a folder, a link."""
    work: float
    """Operations of products, or bytes, of a step."""
    rate: float
    """The roof: operations or bytes per second."""
    bound_s: float
    """The least time in seconds: work over roof, plus the latency of messages."""
    attained: float | None
    """Work over the measured step; unset where no step was measured."""
    assumed: bool = False
    """Whether the roof is taken from another operation's: a gather or a scatter from a sum."""

    @property
    def words(self) -> str:
        """The part with its roof, where these have names of their own: ``compute (float32)``, ``memory``."""
        return self.part if self.roof == self.part else f"{self.part} ({self.roof})"

    @property
    def utilisation(self) -> float | None:
        """The share of the roof that was attained."""
        return None if self.attained is None else self.attained / self.rate


def step_s(characterisation: Characterisation) -> float | None:
    """Seconds of the measured step on all ranks; ``None`` where none was measured."""
    return characterisation.steps[-1].median_s if characterisation.steps else None


def product_flop(characterisation: Characterisation) -> float:
    """Operations of products in a step of a rank."""
    return total([kernel for kernel in characterisation.kernels if kernel.kind in PRODUCTS], "flop")


def bounds(characterisation: Characterisation) -> list[Bound]:
    """Every part whose work and roof are known, in the order of the table of a page."""
    seconds = step_s(characterisation)
    parts: list[Bound] = []

    def add(part: Part, roof: str, work: float, rate: float, latency_s: float = 0.0, assumed: bool = False) -> None:
        attained = None if seconds is None else work / seconds
        parts.append(Bound(part, roof, work, rate, work / rate + latency_s, attained, assumed))

    compute = step_roof(characterisation)
    if compute is not None:
        add("compute", compute.name, product_flop(characterisation), compute.value)
    memory = characterisation.roof("memory")
    if memory is not None:
        add("memory", "memory", characterisation.bytes, memory.value)
    read, passes = characterisation.read_bytes, characterisation.local_batch * characterisation.accumulation
    for roof in characterisation.roofs:
        if roof.resource == "read" and read is not None:
            add("input", roof.name, read * passes, roof.value)
    kinds = [message.kind for message in characterisation.messages]
    for message in characterisation.messages:
        link = message_roof(message, characterisation)
        if link is not None:
            words = [message.kind, message.operation.replace("_", "-")][: 1 + (kinds.count(message.kind) > 1)]
            latency_s, rate = link
            name, half = f"{' '.join(words)}, {message.link}", not is_measured(message, characterisation)
            add("network", name, message.bytes, rate, message.count * latency_s, assumed=half)
    return parts


def step_roof(characterisation: Characterisation) -> Roof | None:
    """The roof of the products of a step, most of which are convolutions; ``None`` where it was not measured."""
    return product_roof(characterisation, "convolution", COMPUTED_IN.get(characterisation.precision, "float32"))


def product_roof(characterisation: Characterisation, kind: Kind, precision: str) -> Roof | None:
    """The roof of a kind of products in ``precision``; ``None`` where it was not measured.

    A device that has TF32 uses it for convolutions in float32, and for other products if ``train.tf32`` is true;
    for neither if that is false. One that multiplies a 16-bit type more slowly than float32 has no instructions for it:
    its libraries convert to float32, so that is the roof.
    """
    train = characterisation.configuration.get("train")
    allowed = train.get("tf32") if isinstance(train, dict) else None
    rounded = kind != "matrix product" if allowed is None else bool(allowed)
    in_tf32 = characterisation.roof("compute", TENSOR_FLOAT) if precision == "float32" and rounded else None
    own, single = (characterisation.roof("compute", name) for name in (precision, "float32"))
    if precision in SIXTEEN_BIT and own is not None and single is not None and single.value > own.value:
        return single
    return in_tf32 or own


def curve_of(characterisation: Characterisation, message: Message) -> Curve | None:
    """The measured curve of a message's operation over the same link; a gather or a scatter is half a sum."""
    operation = "exchange" if message.operation == "exchange" else "all_reduce"
    same = [curve for curve in characterisation.curves if curve.operation == operation and curve.link == message.link]
    return max(same, key=lambda curve: curve.ranks, default=None)


def bound_of(kernel: Kernel, characterisation: Characterisation) -> float | None:
    """The least seconds of one execution: the longest of operations over roof, bytes over roof, and a launch.

    ``None`` where the roofs were not measured. Operations other than products are not compared with a product's roof.
    """
    memory = characterisation.roof("memory")
    if memory is None:
        return None
    launch = characterisation.roof("launch")
    seconds = max(kernel.bytes / memory.value, launch.value if launch else 0.0)
    if kernel.kind not in PRODUCTS:
        return seconds
    compute = product_roof(characterisation, kernel.kind, kernel.precision)
    compute = compute or product_roof(characterisation, kernel.kind, "float32")
    return seconds if compute is None else max(seconds, kernel.flop / compute.value)


def limited_by(kernel: Kernel, characterisation: Characterisation) -> Literal["compute", "memory", "launch"]:
    """Which of these sets the least time of a kernel; ``memory`` where no roof was measured."""
    memory, bound = characterisation.roof("memory"), bound_of(kernel, characterisation)
    if memory is None or bound is None or bound == kernel.bytes / memory.value:
        return "memory"
    launch = characterisation.roof("launch")
    return "launch" if launch is not None and bound == launch.value else "compute"


def lost_s(kernel: Kernel, characterisation: Characterisation) -> float | None:
    """Seconds of a step beyond the kernel's bound: all executions alone, less their least time; never below zero.

    Work that a cache holds may be faster than the roof of memory.
    """
    bound = bound_of(kernel, characterisation)
    if bound is None or kernel.alone_s is None:
        return None
    return max(0.0, kernel.count * (kernel.alone_s - bound))


def message_bound_s(message: Message, characterisation: Characterisation) -> float | None:
    """The least seconds of one message of its mean size: the link's latency once, and bytes over its rate.

    ``None`` where no curve over that link was measured.
    """
    roof = message_roof(message, characterisation)
    return None if roof is None else roof[0] + message.bytes / message.count / roof[1]


def message_roof(message: Message, characterisation: Characterisation) -> tuple[float, float] | None:
    """Latency of a message's link in seconds, and the rate at which it can carry bytes of the message.

    Both are the best of what the curves over that link show. ``None`` where there is none.
    """
    same = [curve for curve in characterisation.curves if curve.link == message.link]
    if not same:
        return None
    rate = max(link_bytes(curve.operation, curve.ranks) * curve.bytes_per_s for curve in same)
    carried = link_bytes(message.operation, max(curve.ranks for curve in same))
    return min(curve.latency_s for curve in same), rate / carried


def is_measured(message: Message, characterisation: Characterisation) -> bool:
    """Whether there is a curve of the message's own operation over its link."""
    return any((curve.operation, curve.link) == (message.operation, message.link) for curve in characterisation.curves)


def node_bytes_per_s(characterisation: Characterisation) -> float | None:
    """The rate at which a node sent to others while all did; ``None`` where no message between nodes was measured.

    Of an exchange in which all ranks of a node send to another, theirs together. Without one (a rank on each node, or
    a file from before it was measured), of the exchange with the next rank, in which one message leaves each node, or
    else of what a ring of the sum sends.
    """
    between = {curve.operation: curve for curve in characterisation.curves if curve.link == "between nodes"}
    if (lanes := between.get("lane_exchange")) is not None:
        return lanes.bytes_per_s * lanes.ranks / lanes.nodes
    if (single := between.get("exchange")) is not None:
        return single.bytes_per_s
    ring = between.get("all_reduce")
    return None if ring is None else ring.bytes_per_s * link_bytes("all_reduce", ring.nodes)


def link_bytes(operation: str, ranks: int) -> float:
    """Bytes that each link carries for a byte of a message.

    All of an exchange; of a sum over n ranks in a ring 2 (n - 1) / n, and half of that of a gather or a scatter.
    """
    return 1.0 if operation in ("exchange", "lane_exchange") else RING_PASSES[operation] * (ranks - 1) / ranks


def message_lost_s(message: Message, characterisation: Characterisation) -> float | None:
    """Seconds of a step beyond the bound of a kind of messages, each sent alone; never below zero."""
    bound = message_bound_s(message, characterisation)
    if bound is None or message.alone_s is None:
        return None
    return max(0.0, message.count * (message.alone_s - bound))


def ranked(characterisation: Characterisation) -> list[Kernel | Message]:
    """Kernels and timed messages by the time that they lose, the most first; those without a time last."""
    lost: list[tuple[Kernel | Message, float | None]] = [
        (kernel, lost_s(kernel, characterisation)) for kernel in characterisation.kernels
    ]
    lost += [
        (message, message_lost_s(message, characterisation))
        for message in characterisation.messages
        if message.alone_s is not None
    ]
    return [each for each, _ in sorted(lost, key=lambda item: -(item[1] or 0.0))]


def longest(characterisation: Characterisation) -> Bound | None:
    """The part whose least time is the longest; ``None`` where none takes any."""
    taken = [bound for bound in bounds(characterisation) if bound.bound_s > 0]
    return max(taken, key=lambda bound: bound.bound_s, default=None)
