"""What a staging did, per rank, per node and in all: the figures for JSON, for a table and for a sentence."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from staging.counters import Counters

SCHEMA = 1
SHOWN_NODES = 12
"""More nodes than this are shown by the slowest and the median one."""


@dataclass
class RankReport:
    """One rank's part. ``phases_s`` are seconds of the clock and add up to ``seconds``."""

    node: str
    rank: int
    counters: Counters
    phases_s: dict[str, float]
    seconds: float
    cache: str
    tier: str
    threads: int
    timeline: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the start, and bytes landed by then."""


@dataclass
class NodeReport:
    """All ranks of a node: sums of their figures, and the seconds of the slowest."""

    name: str
    ranks: int
    seconds: float
    move_s: float
    counters: Counters
    tier: str
    cache: str

    @property
    def landed_bytes_per_s(self) -> float:
        """Rate at which the node's storage filled while data moved."""
        return self.counters.bytes_landed / self.move_s if self.move_s > 0 else 0.0


@dataclass
class StagingReport:
    """A whole staging, the same on every rank."""

    source: str
    destination: str
    placement: str
    path: str
    transform: str
    verify: str
    flushed: bool
    """Whether the bytes were on the device (syncfs) when the clock stopped."""
    ranks: list[RankReport]

    @property
    def seconds(self) -> float:
        """Of the slowest rank, from the first look at the source to the last file made durable."""
        return max(rank.seconds for rank in self.ranks)

    @property
    def totals(self) -> Counters:
        """The figures of all ranks together."""
        total = Counters()
        for rank in self.ranks:
            total.add(rank.counters)
        return total

    def nodes(self) -> list[NodeReport]:
        """Figures per node, in the order of the nodes."""
        grouped: dict[str, list[RankReport]] = {}
        for rank in self.ranks:
            grouped.setdefault(rank.node, []).append(rank)
        return [node_report(name, ranks) for name, ranks in grouped.items()]

    def slowest_and_median(self) -> tuple[NodeReport, float]:
        """The node that took longest, and the median of the nodes' seconds."""
        nodes = self.nodes()
        return max(nodes, key=lambda node: node.seconds), statistics.median(node.seconds for node in nodes)

    def bound(self) -> tuple[str, float]:
        """The activity that was busy for the largest share of the time that data moved, and that share."""
        shares: dict[str, float] = {}
        for rank in self.ranks:
            move = rank.phases_s.get("move", 0.0)
            if move > 0:
                threads = {"read": rank.threads if self.path == "direct" else 1, "exchange": 1, "write": rank.threads}
                for name, number in threads.items():
                    busy = getattr(rank.counters, f"{name}_s") / (move * number)
                    shares[name] = max(shares.get(name, 0.0), busy)
        if not shares:
            return "nothing", 0.0
        name = max(shares, key=lambda key: shares[key])
        return name, shares[name]

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON; the sums of nodes and of all beside the ranks."""
        slowest, median = self.slowest_and_median()
        bound, share = self.bound()
        total = self.totals
        return {
            "schema": SCHEMA,
            **{key: value for key, value in asdict(self).items() if key != "ranks"},
            "seconds": self.seconds,
            "files": total.files_landed,
            "skipped": total.files_present,
            "bytes_read": total.bytes_read,
            "bytes_landed": total.bytes_landed,
            "bytes_per_s": total.bytes_landed / max(self.seconds, 1e-9),
            "bound_by": bound,
            "bound_share": share,
            "slowest_node": slowest.name,
            "slowest_node_s": slowest.seconds,
            "median_node_s": median,
            "totals": asdict(total),
            "nodes": [asdict(node) | {"landed_bytes_per_s": node.landed_bytes_per_s} for node in self.nodes()],
            "ranks": [asdict(rank) for rank in self.ranks],
        }

    def table(self) -> str:
        """A table of the nodes, at most 100 columns wide, and two sentences."""
        nodes, shown = self.nodes(), self.nodes()
        if len(nodes) > SHOWN_NODES:
            order = sorted(nodes, key=lambda node: node.seconds)
            shown = [order[-1], order[len(order) // 2]]
        columns = f"{'read':>10} {'sent':>10} {'received':>10} {'landed':>10}"
        head = f"{'node':20} {'files':>9} {columns} {'time':>8} {'rate':>11}"
        return "\n".join([head, *(row(node) for node in shown), self.sentence(), self.fine_print()])

    def sentence(self) -> str:
        """Where the time went."""
        slowest, median = self.slowest_and_median()
        bound, share = self.bound()
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.phases().items())
        return (
            f"{self.totals.files_landed} files in {self.seconds:.2f} s ({phases}); slowest node {slowest.name} "
            f"{slowest.seconds:.2f} s, median {median:.2f} s; busiest part: {bound}, {share:.0%} of the time"
        )

    def fine_print(self) -> str:
        """What is inside the figures."""
        caches = sorted({rank.cache for rank in self.ranks})
        tiers = sorted({rank.tier for rank in self.ranks})
        flushed = "flushed to the device" if self.flushed else "not flushed to the device"
        checks = {"none": "no checksums", "transfer": "checksums inside", "reread": "checksums inside, read again"}
        return f"reads: {'/'.join(caches)}; destination: {'/'.join(tiers)}; {flushed}; {checks[self.verify]}"

    def phases(self) -> dict[str, float]:
        """Seconds per phase on the slowest rank of each."""
        names = list(dict.fromkeys(name for rank in self.ranks for name in rank.phases_s))
        return {name: max(rank.phases_s.get(name, 0.0) for rank in self.ranks) for name in names}


def node_report(name: str, ranks: list[RankReport]) -> NodeReport:
    """The ranks of a node together."""
    total = Counters()
    for rank in ranks:
        total.add(rank.counters)
    caches = {rank.cache for rank in ranks if rank.counters.bytes_read}
    return NodeReport(
        name=name,
        ranks=len(ranks),
        seconds=max(rank.seconds for rank in ranks),
        move_s=max(rank.phases_s.get("move", 0.0) for rank in ranks),
        counters=total,
        tier=ranks[0].tier,
        cache=caches.pop() if len(caches) == 1 else "mixed" if caches else "unknown",
    )


def row(node: NodeReport) -> str:
    """A line of the table."""
    total = node.counters
    sizes = " ".join(
        f"{human(value):>10}"
        for value in (total.bytes_read, total.bytes_sent, total.bytes_received, total.bytes_landed)
    )
    rate = f"{human(node.landed_bytes_per_s)}/s"
    return f"{node.name[:20]:20} {total.files_landed:>9} {sizes} {node.seconds:>6.2f} s {rate:>11}"


def human(size: float) -> str:
    """A number of bytes with a decimal unit, such as ``2.83 MB``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.2f} {unit}"
        size /= 1000
    raise AssertionError
