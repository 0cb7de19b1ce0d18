"""What a plan moves, node by node, before anything has moved."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from staging.units import counted, human

SHOWN_NODES = 16
"""With more nodes than this, the table shows the first, the last and the extremes."""
COLUMNS = ("bytes_landing", "bytes_read", "bytes_sent", "bytes_received")
TITLE = f"{'node':>6} {'files':>12} {'landing':>11} {'read':>11} {'sent':>11} {'received':>11} {'idle ranks':>11}"


@dataclass(frozen=True)
class NodeFlow:
    """What one node has to do."""

    node: int
    files_landing: int
    bytes_landing: int
    bytes_read: int
    """From the source."""
    bytes_sent: int
    bytes_received: int
    idle_ranks: int
    """Ranks without a lane."""


@dataclass(frozen=True)
class PlanSummary:
    """What all nodes have to do."""

    files: int
    bytes: int
    lanes: int
    """Lanes of the node that has the fewest."""
    nodes: tuple[NodeFlow, ...]
    most_lanes: int | None = None
    """Lanes of the node that has the most, if nodes differ or may do."""

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)

    def table(self) -> str:
        """A line for each node, of at most 100 columns, and one for all."""
        shown = self._shown()
        lines = [TITLE]
        for previous, number in zip([-1, *shown], shown, strict=False):
            if number > previous + 1:
                lines.append(f"{'...':>6}")
            lines.append(_row(str(number), self.nodes[number]))
        lines.append(_row("all", self.total()))
        lanes = f"{self.lanes}" if self.most_lanes in (None, self.lanes) else f"{self.lanes} to {self.most_lanes}"
        files = counted(self.files, "file")
        lines.append(f"{files}, {human(self.bytes)}, nodes: {len(self.nodes)}, lanes of each: {lanes}")
        return "\n".join(lines)

    def total(self) -> NodeFlow:
        """The sums over all nodes; its ``node`` is their number."""
        columns = (sum(column) for column in zip(*(tuple(vars(flow).values())[1:] for flow in self.nodes), strict=True))
        return NodeFlow(len(self.nodes), *columns)

    def _shown(self) -> list[int]:
        """Numbers of the nodes that the table shows."""
        if len(self.nodes) <= SHOWN_NODES:
            return list(range(len(self.nodes)))
        chosen = {0, len(self.nodes) - 1}
        for column in COLUMNS:
            values = [getattr(flow, column) for flow in self.nodes]
            chosen |= {values.index(min(values)), values.index(max(values))}
        return sorted(chosen)


def _row(name: str, flow: NodeFlow) -> str:
    sizes = " ".join(f"{human(getattr(flow, column)):>11}" for column in COLUMNS)
    return f"{name:>6} {flow.files_landing:>12} {sizes} {flow.idle_ranks:>11}"
