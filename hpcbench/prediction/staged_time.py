"""Seconds of a staging from its plan and a probe: bytes and files of each node over what its parts can do.

Work of processors adds up, since each stream reads, checksums and writes in turn: a warm source, writing into pages,
opening and creating files, checksums, inflating, exchange. Devices work alongside: a source that is not in memory, and
the flush to a disk. The slowest node decides, and on a node what takes longest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from staging.planning.plan_summary import NodeFlow, PlanSummary
from staging.probing.ceilings import Ceilings

DEVICES = ("cold read", "flush")


@dataclass(frozen=True)
class StagedTime:
    """Seconds of the slowest node, by part."""

    parts: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """All processor parts together, or the slowest device."""
        processors = sum(value for name, value in self.parts.items() if name not in DEVICES)
        return max(processors, *(self.parts.get(name, 0.0) for name in DEVICES))

    @property
    def limit(self) -> str:
        """The part that takes longest."""
        return max(self.parts, key=lambda name: self.parts[name])


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
    return StagedTime(parts)
