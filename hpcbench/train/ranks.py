"""The ranks of a run as the loop sees them: device, threads, group, and collective failure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from hpcbench import __version__
from hpcbench.config.resolve import as_tree
from hpcbench.config.schema import RunConfig
from hpcbench.exits import Aborted
from hpcbench.measure.job_check import MEET_S, Asked, check_group
from hpcbench.parallel.environment import make_fabric
from hpcbench.parallel.group import MEETING_TIMEOUT_S, Group, connect
from hpcbench.parallel.heap import keep_freed_memory
from hpcbench.parallel.precision import PrecisionPolicy
from hpcbench.parallel.simulated_ranks import deal_to_nodes
from hpcbench.parallel.threads import threads_per_rank
from staging.errors import EveryRankError, InputError
from staging.ranks.abort import AbortWatcher
from staging.ranks.collective_errors import raise_first
from staging.ranks.launch import Launch
from staging.ranks.unwatched import unwatched

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Device, threads and group of this rank; ``watcher`` ends it when another rank dies."""

    launch: Launch
    group: Group
    device: torch.device
    precision: PrecisionPolicy
    threads: int
    watcher: AbortWatcher

    def together(self, step: Callable[[], T]) -> T:
        """As in ``group``."""
        return self.group.together(step)


@contextmanager
def connect_ranks(
    launch: Launch, config_or_error: RunConfig | InputError, asked: Asked | None = None
) -> Iterator[Ranks]:
    """Threads, device and process group of this rank. An error inside ends all ranks at once.

    A rank that found no configuration passes its ``InputError``, which then ends all ranks and is reported once.
    ``asked`` is what the job asked for; if it got something else, ``Aborted`` is raised on all ranks.
    """
    config = RunConfig() if isinstance(config_or_error, InputError) else config_or_error
    with unwatched(launch):
        fabric, precision = make_fabric(launch, config)
        meeting_s = MEETING_TIMEOUT_S if asked is None else MEET_S
        group = connect(launch, fabric.device, timeout_s=config.parallel.timeout_s, meeting_s=meeting_s)
        problem = str(config_or_error) if isinstance(config_or_error, InputError) else None
        try:
            raise_first(group.all_gather_object(("", problem)), launch.rank)
            if asked is not None:
                check_group(asked, group, os.environ)
        except (EveryRankError, Aborted):
            group.close()
            raise
        threads = threads_per_rank(group, config.parallel.threads)
        torch.set_num_threads(threads)
        if fabric.device.type == "cpu":
            keep_freed_memory()
        group.agree("the version of hpcbench", __version__)
        group.agree("the configuration", as_tree(config))
        agree_on_hardware(group, fabric.device, precision)
        check_own_devices(group, fabric.device)
        with_parent = "HPCBENCH_SPAWNED" in os.environ
        watcher = AbortWatcher(group, program="hpcbench", with_parent=with_parent, until_exit=True)
    try:
        with watcher:
            if config.parallel.simulated_nodes is not None:
                group.launch = on_simulated_nodes(
                    group.launch, config.parallel.simulated_nodes, config.parallel.simulated_ranks
                )
            yield Ranks(group.launch, group, fabric.device, precision, threads, watcher)
    except EveryRankError:
        group.close()
        raise
    group.close()


def agree_on_hardware(group: Group, device: torch.device, precision: PrecisionPolicy) -> None:
    """Raise ``InputError`` on all ranks if what ``auto`` means depends on the rank, since each asks its own node."""
    group.agree("the kind of device", device.type, "start all ranks on equal nodes, or set parallel.accelerator cpu")
    group.agree("train.precision auto", precision.name, "set train.precision, such as 32-true")


def check_own_devices(group: Group, device: torch.device) -> None:
    """Raise ``InputError`` on all ranks if two of a node have the same GPU, which NCCL and RCCL refuse; collective.

    ``choose_device`` cannot tell a node's only GPU from one that a launcher shows to each rank.
    """
    if device.type != "cuda" or group.world_size == 1:
        return
    uuid = getattr(torch.get_device_module(device).get_device_properties(device), "uuid", None)
    first: dict[tuple[int, str], int] = {}
    for rank, place in enumerate(group.all_gather_object((group.launch.node_rank, str(uuid or "")))):
        other = first.setdefault(place, rank)
        if place[1] and other != rank:
            raise InputError(
                f"ranks {other} and {rank} are on one node and have the same GPU; start at most one rank per GPU, or "
                "set parallel.accelerator cpu"
            )


def on_simulated_nodes(launch: Launch, nodes: int, simulated_ranks: int | None = None) -> Launch:
    """The launch with the ranks assigned to simulated nodes in contiguous runs. Raises ``EveryRankError``.

    If ranks are simulated, several nodes may be in one process; then they only decide who takes which samples.
    """
    size = launch.world_size * (simulated_ranks or 1)
    if nodes > size:
        raise EveryRankError(
            f"parallel.simulated_nodes ({nodes}) must be at most the number of ranks ({size})", speaks=launch.rank == 0
        )
    if simulated_ranks is not None:
        return launch
    node_of = deal_to_nodes(size, nodes)
    node = node_of[launch.rank]
    return replace(
        launch,
        node_rank=node,
        nodes=nodes,
        local_rank=launch.rank - node_of.index(node),
        local_size=node_of.count(node),
    )
