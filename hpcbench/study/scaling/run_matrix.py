"""The runs of a scaling study: every size, every variant, every repeat, and the batch of each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from hpcbench.config.schema import LARGEST_SEED
from hpcbench.results.units import counted
from hpcbench.study.scaling.definition import TIER, Scaling
from staging.bounds import shown
from staging.errors import InputError
from staging.number_options import MOST_NODES

Variant = tuple[tuple[str, str], ...]
"""A value for each further axis."""


@dataclass(frozen=True)
class Point:
    """A size and a variant."""

    nodes: int
    variant: Variant = ()

    @property
    def label(self) -> str:
        """The variant in words: ``bucket_bytes 1048576, tier node``; empty if nothing is varied."""
        return ", ".join(f"{short(name)} {value or 'unset'}" for name, value in self.variant)


@dataclass(frozen=True)
class PlannedRun:
    """One training of a point: one repeat, or one of its several instances."""

    point: Point
    repeat: int
    """Counted from 1."""
    instance: int | None = None
    """Counted from 1; set in throughput studies only."""

    @property
    def name(self) -> str:
        """Name of the run folder."""
        parts = [f"n{self.point.nodes:04d}"]
        parts += [re.sub(r"[^\w.+-]", "_", f"{short(name)}={value}") for name, value in self.point.variant]
        parts.append(f"r{self.repeat}")
        if self.instance is not None:
            parts.append(f"i{self.instance:03d}")
        return "-".join(parts)


def short(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]


def points(study: Scaling) -> list[Point]:
    """Every point, grouped by variant, smallest first."""
    names = list(study.vary)
    variants = [tuple(zip(names, values, strict=True)) for values in itertools.product(*study.vary.values())]
    return [Point(nodes, variant) for variant in variants for nodes in study.nodes]


def instances(study: Scaling, nodes: int) -> int:
    """Number of instances that train side by side on ``nodes`` nodes."""
    return nodes // study.instance_nodes if study.instance_nodes else 1


def groups(study: Scaling) -> list[list[PlannedRun]]:
    """All runs, in groups that should run at the same time. All first repeats come first."""
    return [
        [PlannedRun(point, repeat, i + 1 if study.mode == "throughput" else None) for i in range(count)]
        for repeat in range(1, study.repeats + 1)
        for point in points(study)
        for count in [instances(study, point.nodes)]
    ]


def all_runs(study: Scaling) -> list[PlannedRun]:
    """All runs, one by one."""
    return [run for group in groups(study) for run in group]


def run_nodes(study: Scaling, run: PlannedRun) -> int:
    """Nodes of one job."""
    return study.instance_nodes or run.point.nodes


def seed_of(study: Scaling, run: PlannedRun) -> int:
    """A seed that no other run of the same point has; sizes and variants share the same seeds."""
    return study.seed + (run.repeat - 1) * 10_000 + (run.instance or 1) - 1


def data_parallel_size(study: Scaling, nodes: int) -> int:
    """The data-parallel size of a job of ``nodes`` nodes: ranks, or groups of ranks that share samples."""
    return nodes * study.ranks_per_node // study.spatial_size


def local_batch_size(study: Scaling, nodes: int) -> int:
    """Samples of a rank and micro-batch in a job of ``nodes`` nodes."""
    if study.global_batch_size is None:
        return study.local_batch_size
    return study.global_batch_size // (data_parallel_size(study, nodes) * study.accumulation)


def checked(study: Scaling) -> Scaling:
    """The study, if all its sizes can run. Raises ``InputError`` with sizes that would work."""
    check_instances(study)
    for nodes in (study.instance_nodes,) if study.instance_nodes else study.nodes:
        if nodes * study.ranks_per_node % study.spatial_size:
            raise InputError(
                f"--nodes {nodes}: {nodes} x {study.ranks_per_node} ranks are not a multiple of the "
                f"{study.spatial_size} that share a sample (parallel.spatial); change --nodes or --ranks-per-node"
            )
    if study.mode != "strong":
        return study
    smallest = data_parallel_size(study, study.nodes[0]) * study.accumulation
    batch = study.global_batch_size or study.local_batch_size * smallest
    for nodes in study.nodes:
        parts = data_parallel_size(study, nodes) * study.accumulation
        if batch % parts:
            fits = [n for n in range(1, max(study.nodes) + 1) if is_whole(study, batch, n)]
            ranks = data_parallel_size(study, nodes)
            raise InputError(
                f"--nodes {nodes}: a global batch of {batch} does not divide among {counted(ranks, 'rank')} x "
                f"{counted(study.accumulation, 'micro-batch', 'micro-batches')}; {batch} does on "
                f"{', '.join(map(str, fits)) or 'no number of'} {'node' if fits == [1] else 'nodes'}, and "
                f"{common_batch(study, batch)} on all of --nodes: change --nodes or --global-batch-size"
            )
    return replace(study, global_batch_size=batch)


def check_instances(study: Scaling) -> None:
    """Raise ``InputError`` for sizes that whole instances do not fill."""
    if study.mode != "throughput":
        return
    size = study.instance_nodes or 1
    for nodes in study.nodes:
        if nodes % size:
            raise InputError(
                f"--nodes {nodes} is not a multiple of the {size} nodes of an instance; change --nodes or "
                "--instance-nodes"
            )


def check_seeds(study: Scaling) -> None:
    """Raise ``InputError`` if a run would have a larger seed than a training can have."""
    largest = max(seed_of(study, run) for run in all_runs(study))
    if largest > LARGEST_SEED:
        raise InputError(
            f"--seed ({study.seed}) must be at most {LARGEST_SEED - largest + study.seed}, since the last of the runs "
            f"has seed {largest} and a seed is at most {LARGEST_SEED}; lower it"
        )


def is_whole(study: Scaling, batch: int, nodes: int) -> bool:
    """Whether a global batch divides among ``nodes`` nodes."""
    parts = data_parallel_size(study, nodes) * study.accumulation
    return parts > 0 and nodes * study.ranks_per_node % study.spatial_size == 0 and batch % parts == 0


def common_batch(study: Scaling, batch: int) -> int:
    """The smallest global batch, of at least ``batch``, that divides among all sizes."""
    common = 1
    for nodes in study.nodes:
        parts = data_parallel_size(study, nodes) * study.accumulation
        common = common * parts // gcd(common, parts)
    return -(-batch // common) * common


def variant_settings(variant: Variant) -> dict[str, str]:
    """The dotted settings of a variant."""
    return {name: value for name, value in variant if name != TIER}


def tier_of(variant: Variant) -> str | None:
    """The storage tier of a variant, if that is varied."""
    return dict(variant).get(TIER)


MOST_SIZES = 100
"""Most sizes of a study: each is checked as a job of its own before anything starts."""


def nodes_list(text: str) -> tuple[int, ...]:
    """``1,2,4`` as sizes, smallest first. Raises ``InputError``."""
    parts = set(text.split(","))
    if not all(re.fullmatch(r"[1-9]\d*", part) for part in parts):
        raise InputError(f"--nodes ({shown(text)}) must be numbers of at least 1 with commas between: 1,2,4,8")
    if len(parts) > MOST_SIZES:
        raise InputError(f"--nodes has {len(parts):,} sizes and may have at most {MOST_SIZES}; leave some out")
    largest = max(parts, key=lambda part: (len(part), part))
    if len(largest) > len(str(MOST_NODES)) or int(largest) > MOST_NODES:
        raise InputError(f"--nodes ({shown(largest)}) must be at most {MOST_NODES:,}; lower it")
    return tuple(sorted({int(part) for part in parts}))


def axes(given: Sequence[str], known: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """``KEY=V,V,...`` of ``--vary`` as axes. Raises ``InputError`` for anything else, with the nearest known key."""
    from hpcbench.suggest import suggest

    values_by_axis: dict[str, tuple[str, ...]] = {}
    for axis in given:
        name, equals, values = axis.partition("=")
        if not equals or len(values.split(",")) != len(set(values.split(","))):
            raise InputError(f"--vary ({axis!r}) must be KEY=VALUE,VALUE,... with every value once")
        if name in values_by_axis:
            raise InputError(f"--vary {name} is given twice; name all its values in one")
        if name != TIER and name not in known:
            raise InputError(f"--vary: unknown setting '{name}'; {suggest(name, [TIER, *known])}")
        values_by_axis[name] = tuple(values.split(","))
    return values_by_axis
