"""Whether what a job needs fits what a machine has, as pure functions of both, and what would fit where it does not.

Beyond a limit a job is refused; above ``NEAR`` of the limit, there is a warning. Where a machine's file does not give
the limit, the finding says so, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcbench.planning.staged_bytes import StagedBytes
from hpcbench.results.units import prefixed, size

NEAR = 0.7
"""The share of a limit above which a need is close to it."""
UNMEASURED = "without the workspace of kernels, which is unmeasured"
"""What the count of memory leaves out on accelerators."""
UP_TO_LOW = "up to 11 % low where it was measured"
"""How exact the count is on processors, in a single process: ``benchmarks/planned_memory.py``."""


@dataclass(frozen=True)
class Room:
    """A limit, and where it applies."""

    where: str
    """Such as ``/dev/shm``."""
    limit: int | None
    """Bytes; ``None`` where it is unknown."""


@dataclass(frozen=True)
class Finding:
    """The verdict on one need: a line of text, and whether a job may be submitted with it."""

    level: Literal["ok", "warn", "refuse"]
    text: str
    short: str = "unknown"
    """For a cell of a table."""


def judge_staging(staged: StagedBytes, room: Room, others: Sequence[Room] = ()) -> Finding:
    """Whether the staged bytes fit ``room`` of a node; ``others`` are further places on the node.

    A size that only the preset gives is a guess, for which nothing is refused.
    """
    need = staged.per_node
    on_each = f"{decimal(need)} to each node ({staged.dataset.words})"
    if room.limit is None:
        return Finding("ok", f"{on_each}; room unknown at {room.where}", f"{decimal(need)}, room unknown")
    short = f"{decimal(need)} of {decimal(room.limit)}"
    limit = f"the {decimal(room.limit)} of {room.where}"
    if need <= NEAR * room.limit:
        return Finding("ok", f"{on_each}, of {limit}", short)
    fits = f"what fits: {'; '.join(what_fits(staged, room, others))}"
    if need <= room.limit:
        return Finding("warn", f"{on_each}, close to {limit}; {fits}", short)
    if staged.dataset.basis == "preset":
        asked = "say how many samples there are (--samples), or take"
        return Finding("warn", f"{on_each}, more than {limit}; {asked} {fits}", short)
    return Finding("refuse", f"staging brings {on_each}, more than {limit}; {fits}", short)


def what_fits(staged: StagedBytes, room: Room, others: Sequence[Room]) -> list[str]:
    """Ways to stage, or not to stage, that fit, with some room left where possible."""
    assert room.limit is not None
    ways = []
    shards = staged.nodes_for(int(NEAR * room.limit)) or staged.nodes_for(room.limit)
    if staged.may_shard and shards is not None:
        option = "--staging.placement shard"
        if staged.sharded or shards > staged.nodes:
            ways.append(f"{shards:,} nodes or more with {option}")
        else:
            ways.append(option)
    ways += [
        f"--local-path {other.where} ({decimal(other.limit)})"
        for other in others
        if other.limit is not None and staged.per_node <= other.limit
    ]
    return [*ways, "--no-stage, which reads the dataset where it lies"]


def judge_memory(
    need: int, room: Room, local_batch: int, smaller: int | None, others: Sequence[str] = (), *, processor: bool = False
) -> Finding:
    """Whether a rank's memory fits ``room``; ``smaller`` is the largest local batch that would, 0 where none does.

    ``smaller`` is ``None`` where it was not looked for; ``others`` are further options that help. On a ``processor``
    the count includes the workspace of kernels.
    """
    how = f"counted with kernels and heap, {UP_TO_LOW}" if processor else f"counted {UNMEASURED}"
    counted = f"{size(need)} for a rank ({how})"
    if room.limit is None:
        return Finding("ok", f"{counted}; memory of {room.where} unknown", f"{size(need)}, room unknown")
    short = f"{size(need)} of {size(room.limit)}"
    limit = f"the {size(room.limit)} of {room.where}"
    if need <= NEAR * room.limit:
        return Finding("ok", f"{counted}, of {limit}", short)
    fits = [f"--train.local_batch_size {smaller}"] if smaller else []
    fits += [*others, "more ranks for a sample (--parallel.spatial), --parallel.activation_checkpointing or "
             "--parallel.shard_states (see hpcbench plan)"]  # fmt: skip
    if need <= room.limit:
        return Finding("warn", f"{counted}, close to {limit}; less memory: {'; '.join(fits)}", short)
    return Finding(
        "refuse",
        f"a rank needs {size(need)} at train.local_batch_size {local_batch} ({how}), more than "
        f"{limit}; what fits: {'; '.join(fits)}",
        short,
    )


def judge_batch(global_batch: int, train_samples: int | None) -> Finding | None:
    """Refuse a global batch that is larger than the training set."""
    if train_samples is None or global_batch <= train_samples:
        return None
    return Finding(
        "refuse",
        f"a global batch of {global_batch:,} is more than the {train_samples:,} training samples; lower --nodes or "
        "train.local_batch_size, or use more samples",
    )


def decimal(count: float) -> str:
    """Bytes in decimal units, as is usual for storage: 1.67 TB."""
    return prefixed(count, "B")
