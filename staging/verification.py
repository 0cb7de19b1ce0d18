"""Reads again what is on the nodes, on all ranks together, and lists every file that is not what landed."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from staging.ledger.journal import Journal
from staging.ledger.manifest import has_manifest, load_records
from staging.ledger.verify import BadFile, Verified, in_all, reread
from staging.one_line import one_line
from staging.progress import Progress
from staging.ranks.collective_errors import together
from staging.ranks.world import Place, World
from staging.units import counted, human

SCHEMA = 1


@dataclass(frozen=True)
class NodeVerified:
    """What one node holds."""

    node: str
    destination: str
    complete: bool
    """Whether its last staging came to its end."""
    verified: Verified


@dataclass(frozen=True)
class Verification:
    """What all nodes hold, the same on every rank."""

    nodes: tuple[NodeVerified, ...]
    seconds: float
    """Seconds of the slowest rank."""

    @property
    def is_good(self) -> bool:
        """Whether all nodes have all that was staged, as it landed."""
        return all(node.complete and not node.verified.bad for node in self.nodes)

    @property
    def total(self) -> Verified:
        """All nodes together."""
        return in_all([node.verified for node in self.nodes])

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        total = self.total
        sums = {"files": total.files, "bytes": total.bytes, "unchecked": total.unchecked, "bad": len(total.bad)}
        nodes = [
            {"node": node.node, "destination": node.destination, "complete": node.complete, **asdict(node.verified)}
            for node in self.nodes
        ]
        return {"schema": SCHEMA, "good": self.is_good, "seconds": self.seconds, **sums, "nodes": nodes}

    def table(self) -> str:
        """A line for each bad file, and sentences about all files."""
        bad = [(node.node, file) for node in self.nodes for file in node.verified.bad]
        return "\n".join([*bad_table(bad), *self.sentences()])

    def sentences(self) -> list[str]:
        """How much was read again, and what to do."""
        total = self.total
        rate = human(total.bytes / max(self.seconds, 1e-9))
        if total.files == 1:
            verdict = f"the file is {'bad' if total.bad else 'good'}"
        else:
            bad = f"{len(total.bad)} of {total.files} files are bad"
            verdict = bad if total.bad else f"all {total.files} files are good"
        lines = [f"{verdict}; {human(total.bytes)} read again in {self.seconds:.2f} s, {rate}/s"]
        if total.unchecked:
            lines.append(unchecked_line(total.unchecked))
        lines += [
            f"{node.node}: the last staging into {node.destination} did not come to its end; stage again for the rest"
            for node in self.nodes
            if not node.complete
        ]
        if total.bad:
            lines.append("stage again with --repair, which brings just these files")
        return lines


def unchecked_line(files: int) -> str:
    """A line that says how many files were compared by size alone; empty for none."""
    were = "was" if files == 1 else "were"
    return f"{counted(files, 'file')} landed without a checksum, and {were} compared by size alone" if files else ""


def bad_table(bad: list[tuple[str, BadFile]]) -> list[str]:
    """Lines of a table of bad files and their nodes; empty if there are none."""
    head = f"{'node':12} {'problem':48} file"
    return (
        [head, *(f"{node[:12]:12} {one_line(file.problem):48} {one_line(file.name)}" for node, file in bad)]
        if bad
        else []
    )


def verify(destination: Path, threads: int, world: World, *, quiet: bool = False) -> Verification:
    """Compare what is below ``destination`` with its manifest, on every node; collective.

    The ranks of a node share its files. Raises ``EveryRankError`` if a node has no readable manifest.
    """
    began, place = time.perf_counter(), world.place
    destination = Path(os.path.realpath(destination))  # somebody may redirect a link meanwhile
    share = together(world, lambda: read_share(destination, threads, place, quiet))
    shares = world.all_gather((place.node_name, str(destination), share, time.perf_counter() - began))
    done = world.all_gather(together(world, lambda: place.local_rank != 0 or Journal(destination).is_done()))
    parts: dict[tuple[str, str], list[Verified]] = {}
    incomplete = {shares[rank][:2] for rank, is_done in enumerate(done) if not is_done}
    for node, where, part, _ in shares:
        parts.setdefault((node, where), []).append(part)
    nodes = (NodeVerified(*key, key not in incomplete, in_all(several)) for key, several in parts.items())
    return Verification(tuple(nodes), max(seconds for *_, seconds in shares))


def damaged(
    destination: Path, threads: int, world: World, *, quiet: bool = False
) -> tuple[list[tuple[str, BadFile]], int]:
    """Bad files of all nodes, each after its node's name, and the number of files without a checksum; collective.

    The same on every rank. A node on which nothing was staged has no bad files: all that it lacks is brought anyway.
    """
    place = world.place

    def look() -> Verified:
        return read_share(destination, threads, place, quiet) if has_manifest(destination) else Verified()

    verified_by_rank = world.all_gather((place.node_name, together(world, look)))
    bad = sorted((node, file) for node, verified in verified_by_rank for file in verified.bad)
    return bad, sum(verified.unchecked for _, verified in verified_by_rank)


def read_share(destination: Path, threads: int, place: Place, quiet: bool) -> Verified:
    """Read this rank's share of its node's files again."""
    number = len(load_records(destination))
    file_count = len(range(place.local_rank, number, place.local_size))
    label = f"verify {destination}" + (f", rank 0 of {place.size}" if place.size > 1 else "")
    with Progress(file_count, label, "files", enabled=place.rank == 0 and not quiet) as progress:
        return reread(destination, threads, progress, place.local_rank, place.local_size)
