"""The set of a node against what its memory tiers hold, within the nodes that convergence allows.

With N nodes, each of which keeps its part, a node holds 1/N of the set. A tier of C bytes per node holds it from
set / C nodes on. A batch of B samples occupies at most B / (accelerators of a node) nodes, at one sample per
accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcbench.analysis.convergence_rows import points
from hpcbench.analysis.entry_runs import EntryRuns
from hpcbench.analysis.machine_names import MachineOf
from hpcbench.analysis.published_sets import SETS, PublishedSet, set_of
from hpcbench.analysis.sheets import column, text
from hpcbench.batch.machine import Machine
from hpcbench.mlperf.rulesets import NEWEST
from hpcbench.results import units

GB, GIB = 1e9, 2**30


@dataclass(frozen=True)
class TierRow:
    """A machine and a set: the number of nodes from which each tier holds it."""

    application: str = column("set", "the published set", text)
    machine: str = column("machine", "of the machine files", text)
    set_gb: float = column(
        "set (GB)", "training and validation samples as stored, 10^9 bytes", units.integer, page=False
    )
    accelerator_gb: float | None = column("acc. (GB)", "memory of a node's accelerators, 10^9 bytes", units.integer)
    memory_gb: float | None = column("memory (GB)", "memory of a node for a job", units.integer)
    storage_gb: float | None = column(
        "storage (GB)", "room on a node's storage devices; 0: it has none; -: unknown", units.integer
    )
    accelerator_nodes: int | None = column(
        "fits acc. from", "nodes from which accelerator memory holds the set", units.integer
    )
    memory_nodes: int | None = column("memory from", "nodes from which node memory holds it", units.integer)
    storage_nodes: int | None = column("storage from", "nodes from which node storage holds it", units.integer)
    batch_nodes: int | None = column(
        "batch to", "nodes that the largest reference batch occupies at one sample per accelerator", units.integer
    )
    demand_gb_s: float | None = column(
        "reads (GB/s)",
        "bytes/s of a node at the best rate of this machine's entries: rate x accelerators x bytes of a sample",
    )
    filesystem_nodes: int | None = column(
        "file system to",
        "nodes whose reads the shared file system carries: its bandwidth over that demand",
        units.integer,
    )
    decides: str = column("node storage decides", "where node storage holds the set and memory does not yet", text)


def tier_rows(machines: Sequence[Machine], entries: Sequence[EntryRuns], machine_of: MachineOf) -> list[TierRow]:
    """A row for the newest set of each application and each machine whose memory and accelerators are known."""
    sets = {published.application: published for published in SETS}
    known = [machine for machine in machines if machine.memory_gib and machine.devices]
    return [tier_row(problem, machine, entries, machine_of) for problem in sets.values() for machine in known]


def tier_row(problem: PublishedSet, machine: Machine, entries: Sequence[EntryRuns], machine_of: MachineOf) -> TierRow:
    """The tiers of a machine against a set."""
    devices = machine.devices or 1
    of_accelerators = machine.accelerator_memory_gib if machine.accelerators else None
    accelerator = of_accelerators * devices * GIB / GB if of_accelerators else None
    memory = (machine.memory_gib or 0) * GIB / GB
    storage = machine.local_disk_gb
    fits = [nodes_for(problem.stored_bytes / GB, tier) for tier in (accelerator, memory, storage)]
    batch = largest_batch(problem.application)
    batch_nodes = max(1, batch // devices) if batch else None
    rate = best_rate(problem, machine, entries, machine_of)
    sample = problem.stored_bytes / (problem.train_samples + problem.validation_samples)
    demand = rate * devices * sample / GB if rate else None
    carried = machine.filesystem_read_gb_s
    return TierRow(
        application=problem.name, machine=machine.title, set_gb=problem.stored_bytes / GB, accelerator_gb=accelerator,
        memory_gb=memory, storage_gb=storage, accelerator_nodes=fits[0], memory_nodes=fits[1], storage_nodes=fits[2],
        batch_nodes=batch_nodes, demand_gb_s=demand,
        filesystem_nodes=int(carried / demand) if carried and demand else None,
        decides=decides(least(fits[:2]), fits[2], storage, batch_nodes),
    )  # fmt: skip


def nodes_for(set_gb: float, tier_gb: float | None) -> int | None:
    """Nodes from which a tier holds the set; ``None`` for a tier that is unknown or absent."""
    return math.ceil(set_gb / tier_gb) if tier_gb else None


def largest_batch(application: str) -> int | None:
    """The largest global batch of the reference points that the newest rules keep."""
    kept = [batch for batch, row in points(application, NEWEST).items() if row.kept == "yes"]
    return max(kept, default=None)


def best_rate(
    problem: PublishedSet, machine: Machine, entries: Sequence[EntryRuns], machine_of: MachineOf
) -> float | None:
    """The highest rate per accelerator of entries of this machine and set, samples/s."""
    rates = [
        entry.samples_per_s_per_accelerator or 0.0 for entry in entries
        if set_of(entry.first) is problem and machine_of(entry) is machine
    ]  # fmt: skip
    return max(rates, default=0.0) or None


def least(nodes: Sequence[int | None]) -> int | None:
    """The fewest nodes of those known."""
    return min((count for count in nodes if count is not None), default=None)


def decides(memory: int | None, storage: int | None, storage_gb: float | None, most: int | None) -> str:
    """Where node storage makes the difference, in words."""
    if storage_gb is None:
        return "storage unknown"
    if memory is None:
        return ""
    last = memory - 1 if most is None else min(memory - 1, most)
    if storage_gb == 0 or storage is None:
        return (
            f"none there: {span(1, last)} read from the shared file system" if last >= 1 else "none there, none needed"
        )
    return span(storage, last) if storage <= last else "no: memory holds the set as early"


def span(first: int, last: int) -> str:
    """``4 to 7 nodes``."""
    return units.counted(first, "node") if first == last else f"{first:,} to {last:,} nodes"
