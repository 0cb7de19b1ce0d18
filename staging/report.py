"""What a staging did, per rank, per node and in total: the figures for JSON, for a table and for sentences."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any

from staging.counters import Counters
from staging.probing.bottleneck import BUSY_WORDS, Share, busy_shares, probed_shares
from staging.probing.ceilings import WORDS, Ceilings, rate_text
from staging.units import counted, human

SCHEMA = 1
SHOWN_NODES = 12
"""With more nodes than this, the table shows only the slowest and the median one."""
SETTINGS = ("source", "destination", "placement", "path", "transform", "verify", "flushed")
COLUMNS = 100
GROWTH_SHOWN = 4 << 20
"""The report mentions growth of files with holes from this many bytes on."""
BEYOND = 1.1
"""Above this share, the probe can't have seen what the part can do."""
NO_PROBE = (
    "no ceiling was probed for this source and these nodes: add --probe-first, or run "
    "`hpcbench stage SRC DST --probe` in the same allocation before"
)


@dataclass
class RankReport:
    """One rank's part. ``phases_s`` are seconds of wall time and add up to ``seconds``."""

    node: str
    rank: int
    counters: Counters
    phases_s: dict[str, float]
    seconds: float
    cache: str
    tier: str
    threads: int
    way: str = "buffered"
    """How large files were written: ``buffered``, ``early`` or ``uncached``."""
    timeline: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the data began to move, and bytes landed by then."""


@dataclass
class NodeReport:
    """All ranks of a node: sums of their figures, and the seconds of the slowest."""

    name: str
    ranks: int
    seconds: float
    """Seconds until its last rank had everything in place, without waiting for other nodes."""
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
    repaired: list[dict[str, str]] = field(default_factory=list)
    """Files that a repair found bad and brought again: ``node``, ``name`` and ``problem`` of each."""
    ceilings: Ceilings | None = None
    """What a probe of this source on these nodes measured, if there was one."""

    @property
    def seconds(self) -> float:
        """Seconds of the slowest rank, from the first look at the source to the last file made durable."""
        return max(rank.seconds for rank in self.ranks)

    @property
    def totals(self) -> Counters:
        """The figures of all ranks together."""
        total = Counters()
        for rank in self.ranks:
            total.add(rank.counters)
        return total

    @property
    def growth_bytes(self) -> int:
        """How many more bytes files with holes take at the destinations than at the source."""
        total = self.totals
        return total.sparse_landed_bytes - total.sparse_source_bytes

    def nodes(self) -> list[NodeReport]:
        """Figures per node, in the order of the nodes."""
        grouped: dict[str, list[RankReport]] = {}
        for rank in self.ranks:
            grouped.setdefault(rank.node, []).append(rank)
        return [node_report(name, ranks) for name, ranks in grouped.items()]

    def slowest_and_median(self) -> tuple[NodeReport, NodeReport]:
        """The node that took longest, and the median one (the faster of two)."""
        nodes = sorted(self.nodes(), key=lambda node: node.seconds)
        return nodes[-1], nodes[(len(nodes) - 1) // 2]

    def shares(self) -> list[Share]:
        """How much of its limit each part reached, highest first: of the probed ceiling, or else of the seconds."""
        if self.ceilings is None:
            return busy_shares(self.ranks, self.path)
        return probed_shares(self.ranks, self.ceilings, self.path, self.transform, self.verify)

    def bound(self) -> Share:
        """The part that came nearest to what it can do, or without a probe the one that was busy longest."""
        return next(iter(self.shares()), Share("nothing", 0.0))

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON: each rank's figures, and the sums per node and over all."""
        slowest, median = self.slowest_and_median()
        bound, total = self.bound(), self.totals
        return {
            "schema": SCHEMA,
            **{name: getattr(self, name) for name in SETTINGS},
            "seconds": self.seconds,
            "files": total.files_landed,
            "skipped": total.files_present,
            "bytes_read": total.bytes_read,
            "bytes_landed": total.bytes_landed,
            "growth_bytes": self.growth_bytes,
            "bytes_per_s": total.bytes_landed / max(self.seconds, 1e-9),
            "bound_by": bound.part,
            "bound_share": bound.share,
            "bound_basis": "time" if self.ceilings is None else "probe",
            "repaired": self.repaired,
            "shares": [asdict(share) for share in self.shares()],
            "slowest_node": slowest.name,
            "slowest_node_s": slowest.seconds,
            "median_node": median.name,
            "median_node_s": median.seconds,
            "totals": asdict(total),
            "nodes": [asdict(node) | {"landed_bytes_per_s": node.landed_bytes_per_s} for node in self.nodes()],
            "ranks": [asdict(rank) for rank in self.ranks],
            "ceilings": None if self.ceilings is None else self.ceilings.as_dict(),
        }

    def table(self) -> str:
        """A table of the nodes and some sentences, at most 100 columns wide."""
        nodes, shown = self.nodes(), self.nodes()
        if len(nodes) > SHOWN_NODES:
            shown = list(self.slowest_and_median())
        columns = f"{'read':>10} {'sent':>10} {'received':>10} {'landed':>10}"
        head = f"{'node':18} {'files':>9} {columns} {'time':>8} {'landed rate':>11}"
        sentences = [self.sentence(), self.growth_sentence(), self.bound_sentence(), self.fine_print()]
        return "\n".join([head, *(row(node) for node in shown), *(wrapped(text) for text in sentences if text)])

    def sentence(self) -> str:
        """What was brought, and where the time went."""
        slowest, median = self.slowest_and_median()
        phases = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in self.phases().items())
        total = self.totals
        counts = {
            "were there already": total.files_present,
            "were bad and are mended": len(self.repaired),
            "had changed in the source": total.files_changed,
            "stay though they vanished from the source (--drop-vanished)": total.files_vanished,
            "vanished from the source and were removed": total.files_dropped,
        }
        there = "".join(f", {count} {words}" for words, count in counts.items() if count)
        files = counted(total.files_landed, "file")
        return (
            f"{files} in {self.seconds:.2f} s ({phases}){there}; slowest node {slowest.name} "
            f"{slowest.seconds:.2f} s, median node {median.name} {median.seconds:.2f} s"
        )

    def growth_sentence(self) -> str:
        """How much files with holes have grown; empty if it is not worth a line."""
        total = self.totals
        if self.growth_bytes < GROWTH_SHOWN:
            return ""
        return (
            f"files with holes take {human(total.sparse_landed_bytes)} here and {human(total.sparse_source_bytes)} in "
            "the source: holes below 1 MiB or --piece-bytes become zeros, and compression of its filesystem is lost"
        )

    def bound_sentence(self) -> str:
        """What the staging was bound by."""
        bound = self.bound()
        if self.ceilings is None:
            busiest = f"busiest: {BUSY_WORDS[bound.part]}, {bound.share:.0%} of the time"
            return f"{busiest}; {NO_PROBE}"
        if bound.part == "nothing":
            return "nothing moved, so no ceiling was near"
        on_node = f" on {bound.node}" if bound.node and len({rank.node for rank in self.ranks}) > 1 else ""
        rates = f"{rate_text(bound.part, bound.achieved)} of {rate_text(bound.part, bound.ceiling)}"
        first = f"bound by {WORDS[bound.part]}{on_node}: {rates}, {bound.share:.0%} of the probed ceiling"
        if bound.share > BEYOND:
            first += "; the probe saw too little, repeat it for longer (--probe-seconds)"
        others = ", ".join(f"{WORDS[share.part]} {share.share:.0%}" for share in self.shares()[1:])
        return first + (f"; others: {others}" if others else "")

    def fine_print(self) -> str:
        """What the figures include."""
        caches = sorted({rank.cache for rank in self.ranks if rank.counters.bytes_read}) or ["unknown"]
        tiers, ways = (sorted({getattr(rank, name) for rank in self.ranks}) for name in ("tier", "way"))
        flushed = "flushed to the device" if self.flushed else "not flushed to the device"
        checks = {"none": "no checksums", "transfer": "checksums inside", "reread": "checksums inside, read again"}
        return (
            f"reads: {'/'.join(caches)}; destination: {'/'.join(tiers)}; large files written {'/'.join(ways)}, "
            f"{flushed}; {checks[self.verify]}"
        )

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
        seconds=max(rank.seconds - rank.phases_s.get("wait", 0.0) for rank in ranks),
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
    return f"{node.name[:18]:18} {total.files_landed:>9} {sizes} {node.seconds:>6.2f} s {rate:>11}"


def wrapped(text: str) -> str:
    """A sentence in lines of at most ``COLUMNS`` characters."""
    return textwrap.fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)
