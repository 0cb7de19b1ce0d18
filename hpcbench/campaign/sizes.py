"""What each size of a scenario needs on a machine, and why it cannot run if it cannot, before a job starts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

from hpcbench.batch.job import ranks_per_node as default_ranks_per_node
from hpcbench.batch.site import Site
from hpcbench.campaign.entry import Entry, global_batch_of
from hpcbench.config.schema import RunConfig
from hpcbench.parallel.mesh_shape import spatial_sizes
from hpcbench.planning.dataset_size import dataset_size
from hpcbench.planning.fits import Room
from hpcbench.planning.job_fit import GIB, on_processors
from hpcbench.planning.rank_memory import rank_memory
from hpcbench.results.units import counted, size
from staging.errors import InputError

MOST_TRIES = 24
"""Most halvings of a local batch in the search for one that fits."""


@dataclass(frozen=True)
class SizePlan:
    """One size of a scenario on a machine."""

    nodes: int
    instances: int
    ranks: int
    """Ranks of one run."""
    accelerators: bool
    local_batch: int | None
    """``None`` if the batch does not divide evenly."""
    global_batch: int
    accumulation: int
    runs: int
    need: int | None = None
    """Bytes that a rank needs; ``None`` if they were not counted."""
    room: Room = field(default_factory=lambda: Room("a rank", None))
    problem: str = ""
    """Why the size cannot run; empty if it can."""

    @property
    def memory(self) -> str:
        """What a rank needs out of what it has, for a table."""
        if self.need is None:
            return "not counted"
        return f"{size(self.need)} of {'unknown' if self.room.limit is None else size(self.room.limit)}"


def plan_sizes(entry: Entry, config: RunConfig, site: Site) -> list[SizePlan]:
    """Every size of the entry, smallest first. Raises ``InputError`` if the entry names none."""
    per_node = default_ranks_per_node(site, entry.request)
    if not entry.nodes:
        raise InputError(f"scenario {entry.scenario.name} needs --nodes, its sizes in nodes")
    return [plan_size(entry, config, site, nodes, per_node) for nodes in entry.nodes]


def plan_size(entry: Entry, config: RunConfig, site: Site, nodes: int, per_node: int) -> SizePlan:
    """One size: its batch, its memory, and the first problem that forbids it."""
    per_run = instance_nodes(entry, nodes)
    ranks = per_run * per_node
    parts = max(1, ranks // prod(spatial_sizes(config.parallel.spatial))) * config.train.accumulation
    whole = global_batch_of(entry, config)
    local = entry.scenario.batch.local_size if whole is None else (whole // parts if whole % parts == 0 else None)
    batch = whole or (local or 0) * parts
    instances = nodes // per_run if entry.scenario.throughput else 1
    plan = SizePlan(
        nodes, instances, ranks, site.node.gpus > 0, local, batch, config.train.accumulation,
        instances * (1 if entry.scenario.throughput else entry.scenario.replicates),
        room=room_of_rank(site, per_node),
    )  # fmt: skip
    for problem in (instances_problem(entry, plan), batch_problem(entry, plan, parts), dataset_problem(entry, plan)):
        if problem:
            return replace(plan, problem=problem)
    return with_memory(entry, config, plan, per_run, per_node)


def instance_nodes(entry: Entry, nodes: int) -> int:
    """Nodes of one run. Raises ``InputError`` for a throughput scenario without ``--instance-nodes``."""
    if not entry.scenario.throughput:
        return nodes
    if entry.instance_nodes is None:
        raise InputError(f"scenario {entry.scenario.name} needs --instance-nodes, the nodes of each instance")
    return min(nodes, entry.instance_nodes)


def instances_problem(entry: Entry, plan: SizePlan) -> str:
    """Why the nodes do not hold enough whole instances of a throughput scenario; empty if they do."""
    scenario = entry.scenario
    if not scenario.throughput:
        return ""
    per_run = entry.instance_nodes or 1
    if plan.nodes % per_run:
        return f"{counted(plan.nodes, 'node')} are no multiple of the {per_run} of an instance"
    if plan.instances < scenario.replicates:
        return (f"{counted(plan.nodes, 'node')} hold {counted(plan.instances, 'instance')} of "
                f"{counted(per_run, 'node')}; {scenario.replicates} or more are needed: "
                f"{scenario.replicates * per_run} nodes")  # fmt: skip
    return ""


def who(plan: SizePlan, ranks: int | None = None) -> str:
    """``64 GPUs``, or ranks if there are no GPUs."""
    return counted(plan.ranks if ranks is None else ranks, "GPU" if plan.accelerators else "rank")


def batch_problem(entry: Entry, plan: SizePlan, parts: int) -> str:
    """Why the global batch does not divide evenly, and what does if the rules leave it open; empty if it divides."""
    if plan.local_batch:
        return ""
    batch = plan.global_batch
    is_fixed = entry.scenario.batch.global_size is not None
    other = "" if is_fixed else "; give another batch with --global-batch-size, and its recipe with --preset"
    if parts > batch:
        return (f"{who(plan)} are more than the samples of a global batch of {batch:,}; at most {batch:,} can share "
                f"it{other}")  # fmt: skip
    below = max(n for n in range(1, parts + 1) if batch % n == 0)
    above = min(n for n in range(parts, batch + 1) if batch % n == 0)
    return f"{who(plan)} cannot share a global batch of {batch:,} evenly; {below:,} or {above:,} can{other}"


def dataset_problem(entry: Entry, plan: SizePlan) -> str:
    """That the global batch is larger than the training set; empty if it is not."""
    samples = entry.scenario.dataset.train_samples
    if samples is None or plan.global_batch <= samples:
        return ""
    return f"a global batch of {plan.global_batch:,} is more than the {samples:,} training samples"


def room_of_rank(site: Site, per_node: int) -> Room:
    """The memory of a rank according to the machine file; on this machine the run itself checks."""
    if site.scheduler == "local":
        return Room("this machine", None)
    if site.node.gpus:
        gib = site.machine.memory_of_accelerator(site.constraint) if site.machine is not None else None
        return Room("an accelerator", None if gib is None else int(gib * GIB))
    memory = site.node.memory_gib
    return Room("a rank's share of its node's memory", None if memory is None else memory * GIB // per_node)


def with_memory(entry: Entry, config: RunConfig, plan: SizePlan, nodes: int, per_node: int) -> SizePlan:
    """The size with the memory that a rank needs, and a problem if that is too much."""
    if plan.room.where == "this machine":
        return plan
    if not plan.accelerators:
        config = on_processors(config)

    def need(local: int) -> int | None:
        tried = replace(config, train=replace(config.train, local_batch_size=local))
        return rank_memory(entry.application, tried, nodes, per_node)

    local = plan.local_batch or 1
    plan = replace(plan, need=need(local))
    if plan.need is None or plan.room.limit is None or plan.need <= plan.room.limit:
        return plan
    return replace(plan, problem=memory_problem(entry, plan, need))


def memory_problem(entry: Entry, plan: SizePlan, need: Callable[[int], int | None]) -> str:
    """That a rank does not fit in memory, and how many ranks would."""
    assert plan.need is not None
    assert plan.room.limit is not None
    local = plan.local_batch or 1
    takes = f"{size(plan.need)} of a rank, more than the {size(plan.room.limit)} of {plan.room.where}"
    if entry.scenario.batch.local_size is not None:
        return f"local batch {local} takes {takes}"
    fits = local
    for _ in range(MOST_TRIES):
        needed = need(fits)
        if needed is not None and needed <= plan.room.limit:
            break
        fits = fits // 2 if fits % 2 == 0 else 0
        if not fits:
            break
    without = "" if entry.scenario.batch.accumulation else " without accumulation"
    cannot = f"{who(plan)} cannot hold a global batch of {plan.global_batch:,}{without}"
    ranks = plan.ranks * local // fits if fits else 0
    hint = f"; {who(plan, ranks)} hold it with local batch {fits}" if fits else ""
    return f"{cannot}: local batch {local} needed, which takes {takes}{hint}"


def counts_problem(entry: Entry, config: RunConfig) -> str:
    """Why the dataset on this machine is not that of the rules; empty if it is, or if there is no dataset here."""
    wanted = entry.scenario.dataset
    alone = copy.deepcopy(config)
    alone.data.train_samples = alone.data.validation_samples = None
    dataset = dataset_size(entry.application, alone)
    if dataset is None or dataset.basis != "files":
        return ""
    pairs = [("training", dataset.train_samples, wanted.train_samples),
             ("validation", dataset.validation_samples, wanted.validation_samples)]  # fmt: skip
    for what, here, asked in pairs:
        if asked is not None and here != asked:
            return f"the dataset in {config.data.root} has {here:,} {what} samples, the rules want {asked:,}"
    return ""
