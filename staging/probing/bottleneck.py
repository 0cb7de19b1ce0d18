"""What bound a staging: how near each part came to its probed ceiling, or, without a probe, what was busiest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from staging.counters import Counters
from staging.probing.ceilings import Ceilings, Rate

BUSY_WORDS = {
    "list": "listing the source",
    "read": "reading the source",
    "exchange": "the exchange between nodes",
    "write": "writing, with checksums and transform",
    "commit": "flushing to the device",
    "verify": "reading again what landed",
    "nothing": "nothing",
}


class Rank(Protocol):
    """What is known of one rank."""

    node: str
    counters: Counters
    phases_s: dict[str, float]
    seconds: float
    threads: int
    way: str


@dataclass(frozen=True)
class Share:
    """A part of a staging, and how much of its capability was used."""

    part: str
    share: float
    """Share of the probed ceiling; without a probe, of the staging's seconds."""
    achieved: float = 0.0
    """Bytes or files per second while data moved; 0 without a probe."""
    ceiling: float = 0.0
    """The same, as probed."""
    node: str = ""
    """The node where the share is largest; empty for what all nodes share."""


@dataclass
class _Node:
    """Sums of a node's ranks, and the seconds of its slowest."""

    counters: Counters
    move_s: float = 0.0
    commit_s: float = 0.0


def probed_shares(ranks: Sequence[Rank], ceilings: Ceilings, path: str, transform: str, verify: str) -> list[Share]:
    """For each part that moved something, its rate over the fastest that the probe saw; highest first.

    What all nodes share (the source) counts in total, against the longest time that a node moved data. The rest counts
    on the slowest node, which decides how long the staging takes. In an exchange, where nodes wait for one another, it
    counts on the node that comes nearest to its own ceiling.
    """
    nodes = _by_node(ranks)
    move_s = max((node.move_s for node in nodes.values()), default=0.0)
    deciding = {rank.node for rank in _deciding(ranks, path)}
    shares, way = [], next((rank.way for rank in ranks), "")
    for part, attribute in (("read", "bytes_read"), ("open", "files_read")):
        rate, amount = ceilings.best(part), sum(getattr(node.counters, attribute) for node in nodes.values())
        if rate is not None and rate.total > 0 and amount and move_s > 0:
            shares.append(Share(part, amount / move_s / rate.total, amount / move_s, rate.total))
    for part in ("write", "write_flushed", "create", "exchange", "crc32c", "gunzip"):
        rate = ceilings.best(part, way if part in ("write", "write_flushed") else None)
        if rate is None or (part == "crc32c" and verify == "none") or (part == "gunzip" and "gunzip" not in transform):
            continue
        of_nodes = [
            _share_of(part, name, node, rate, ceilings, path) for name, node in nodes.items() if name in deciding
        ]
        shares += sorted((share for share in of_nodes if share is not None), key=_share)[-1:]
    return sorted(shares, key=_share, reverse=True)


def busy_shares(ranks: Sequence[Rank], path: str) -> list[Share]:
    """For each activity, the share of the staging's seconds during which it kept its threads busy; highest first.

    That is the busiest rank's share on the slowest node, which decides how long the staging takes, or in an exchange,
    where nodes wait for one another, on any node. A thread counts while it had work: one that found nothing to do does
    not make the others look idle. For the exchange itself, it is the least busy rank's share: any more time that other
    ranks spend there is waiting for a slower one.
    """
    seconds, nodes = max((rank.seconds for rank in ranks), default=0.0), len({rank.node for rank in ranks})
    ranks = _deciding(ranks, path)
    moving = [rank for rank in ranks if rank.phases_s.get("move", 0.0) > 0 and _worked(rank.counters)]
    if seconds <= 0:
        return []
    shares = {
        name: max(rank.phases_s.get(name, 0.0) for rank in ranks) / seconds for name in ("list", "commit", "verify")
    }
    busy = [_busy(rank, path, nodes) for rank in moving]
    for name, choose in (("read", max), ("write", max), ("exchange", min)):
        shares[name] = choose((rank_busy[name] for rank_busy in busy), default=0.0) / seconds
    return sorted((Share(name, share) for name, share in shares.items() if share > 0), key=_share, reverse=True)


def _deciding(ranks: Sequence[Rank], path: str) -> list[Rank]:
    """The ranks that decide how long a staging takes: all in an exchange, else those of the slowest node."""
    if path == "exchange" or not ranks:
        return list(ranks)
    slowest = max(ranks, key=lambda rank: rank.seconds - rank.phases_s.get("wait", 0.0))
    return [rank for rank in ranks if rank.node == slowest.node]


def _by_node(ranks: Sequence[Rank]) -> dict[str, _Node]:
    nodes: dict[str, _Node] = {}
    for rank in ranks:
        node = nodes.setdefault(rank.node, _Node(Counters()))
        node.counters.add(rank.counters)
        node.move_s = max(node.move_s, rank.phases_s.get("move", 0.0))
        node.commit_s = max(node.commit_s, rank.phases_s.get("commit", 0.0))
    return nodes


def _share_of(part: str, name: str, node: _Node, rate: Rate, ceilings: Ceilings, path: str) -> Share | None:
    counters = node.counters
    amounts = {
        "write": counters.bytes_landed,
        "write_flushed": counters.bytes_landed,
        "create": counters.files_landed,
        "exchange": max(counters.bytes_sent, counters.bytes_received),
        "crc32c": counters.bytes_landed
        + (counters.bytes_read + counters.bytes_received if path == "exchange" else 0),
        "gunzip": counters.bytes_landed,
    }  # fmt: skip
    seconds = node.move_s + (node.commit_s if part == "write_flushed" else 0.0)
    # a later allocation has other nodes, about which nothing is known
    ceiling = rate.per_node[ceilings.nodes.index(name)] if name in ceilings.nodes else 0.0
    if not amounts[part] or seconds <= 0 or ceiling <= 0:
        return None
    return Share(part, amounts[part] / seconds / ceiling, amounts[part] / seconds, ceiling, name)


def _busy(rank: Rank, path: str, nodes: int) -> Mapping[str, float]:
    """Seconds of the move during which each activity was at work, averaged over the threads that it had work for."""
    counters, move = rank.counters, rank.phases_s["move"]
    if path == "exchange":
        # all pieces of one node go to the same writing thread
        return {
            "read": min(counters.read_s, move),
            "exchange": min(counters.exchange_s, move),
            "write": min(counters.write_s / min(rank.threads, nodes), move),
        }
    if counters.read_stalled_s == counters.write_stalled_s == 0:
        # small files: each thread alternates reads and writes, and never waits
        reading = writing = counters.read_s + counters.write_s
    else:
        reading = counters.read_s + counters.read_stalled_s
        writing = counters.write_s + counters.write_stalled_s
    return {
        "read": move * counters.read_s / reading if reading > 0 else 0.0,
        "exchange": 0.0,
        "write": move * counters.write_s / writing if writing > 0 else 0.0,
    }


def _worked(counters: Counters) -> bool:
    return counters.read_s + counters.exchange_s + counters.write_s > 0


def _share(share: Share) -> float:
    return share.share
