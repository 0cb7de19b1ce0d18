"""Seconds of a staging from its plan and a probe: bytes and files of each node over what its parts can do.

Work of processors adds up, since each stream reads, checksums and writes in turn: a warm source, writing into pages,
opening and creating files, checksums, inflating, exchange. A source that is not in memory is a device which the streams
share: while one waits for it, the others continue. How much that overlaps follows from mean value analysis of a closed
network (Reiser and Lavenberg 1980). What is still to be flushed when all is written comes after that. The slowest node
decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from staging.planning.plan_summary import NodeFlow, PlanSummary
from staging.probing.ceilings import Ceilings

DEVICES = ("cold read", "flush")
DIRTY_SHARE = 0.1
"""Share of the memory that may wait to be flushed before the system begins to (Linux's dirty_background_ratio)."""
MOST_STREAMS = 4096
"""More streams of a node change nothing that a prediction could tell."""


@dataclass(frozen=True)
class StagedTime:
    """Seconds of the slowest node, by part; "flush" includes writing into pages."""

    parts: Mapping[str, float]
    streams: int = 1
    """Streams of a node."""
    delay: float = 0.0
    """Seconds that a single stream would wait for a cold source, beyond what the source itself is busy for it."""
    dirty: float = 1.0
    """Share of the bytes that is still to be flushed when all is written."""

    @property
    def seconds(self) -> float:
        """What the streams take, and the flush of what is left then; at least what the flush of everything takes."""
        processors = sum(value for name, value in self.parts.items() if name not in DEVICES)
        moved = seconds_of_streams(
            self.parts.get("cold read", 0.0), self.streams * processors + self.delay, self.streams
        )
        flush = self.parts.get("flush", 0.0)
        return max(moved + self.dirty * max(0.0, flush - self.parts.get("write", 0.0)), flush)

    @property
    def limit(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])


def seconds_of_streams(device: float, elsewhere: float, streams: int) -> float:
    """Seconds until ``streams`` streams have done what one would do in ``device`` + ``elsewhere`` seconds.

    They share the device, where they queue; elsewhere they don't hinder each other. Mean value analysis: a stream that
    arrives at the device finds as many there as there are on average with one stream less.
    """
    there = throughput = 0.0
    for number in range(1, streams + 1):
        at_device = device * (1 + there)
        if at_device + elsewhere <= 0:
            return 0.0
        throughput = number / (at_device + elsewhere)
        there = throughput * at_device
    return 1 / throughput


def staged_time(
    summary: PlanSummary, ceilings: Ceilings, *, way: str | None = None, verify: str = "transfer", gunzip: bool = False
) -> StagedTime:
    """The time of a staging whose plan is ``summary``; ``way`` is how large files are written."""
    nodes = [node_time(summary, flow, ceilings, way, verify, gunzip) for flow in summary.nodes]
    return max(nodes, key=lambda node: node.seconds)


def node_time(
    summary: PlanSummary, flow: NodeFlow, ceilings: Ceilings, way: str | None, verify: str, gunzip: bool
) -> StagedTime:
    """The parts of one node. What all nodes share counts in full."""
    number = flow.node if flow.node < len(ceilings.nodes) else 0
    parts: dict[str, float] = {}

    def add(name: str, part: str, amount: float, whole: bool = False, note: str | None = None) -> None:
        rate = ceilings.best(part, note)
        if rate is not None and amount > 0:
            speed = rate.total if whole else rate.per_node[number]
            if speed > 0:
                parts[name] = amount / speed

    read = ceilings.best("read")
    cold = read is not None and read.note == "cold"
    add("cold read" if cold else "read", "read", sum(node.bytes_read for node in summary.nodes), whole=True)
    add("open", "open", sum(node.files_landing for node in summary.nodes), whole=True)
    add("write", "write", flow.bytes_landing, note=way)
    add("create", "create", flow.files_landing)
    add("flush", "write_flushed", flow.bytes_landing, note=way)
    if verify != "none":
        add("checksums", "crc32c", flow.bytes_landing)
    if gunzip:
        add("inflate", "gunzip", flow.bytes_landing)
    add("exchange", "exchange", max(flow.bytes_sent, flow.bytes_received))
    delay = delay_of(ceilings, number, flow.bytes_read) if cold else 0.0
    return StagedTime(parts, streams_of(ceilings), delay, dirty_share(ceilings, flow.bytes_landing))


def ranks_per_node(ceilings: Ceilings) -> int:
    """Ranks of a node in the probe."""
    return max(1, round(ceilings.ranks / len(ceilings.nodes)))


def streams_of(ceilings: Ceilings) -> int:
    """Streams of a node: its ranks, times the threads with which each wrote."""
    write = ceilings.best("write")
    return min(MOST_STREAMS, ranks_per_node(ceilings) * (1 if write is None else max(1, write.threads)))


def delay_of(ceilings: Ceilings, node: int, bytes_read: float) -> float:
    """How much longer a node's bytes would take a single stream than as many as read fastest, in seconds."""
    rates = [(rate.threads, rate.per_node[node]) for rate in ceilings.rates if rate.part == "read"]
    alone = max((rate for threads, rate in rates if threads == 1), default=0.0) / ranks_per_node(ceilings)
    return max(0.0, bytes_read / alone - bytes_read / max(rate for _, rate in rates)) if alone > 0 else 0.0


def dirty_share(ceilings: Ceilings, bytes_landing: float) -> float:
    """How much of what lands on a node may still wait for the flush at the end; all, if its memory is not known."""
    sizes = [facts.get("memory_bytes") for facts in ceilings.machine if isinstance(facts, dict)]
    known = [size for size in sizes if isinstance(size, int | float) and size > 0]
    return min(1.0, DIRTY_SHARE * min(known) / bytes_landing) if known and bytes_landing > 0 else 1.0
