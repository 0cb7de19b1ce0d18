"""The ranks of a run as the loop knows them: device, threads, group, and failing together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from lightning.fabric import Fabric

from hpcbench import __version__
from hpcbench.config.resolve import as_tree
from hpcbench.config.schema import RunConfig
from hpcbench.exits import EveryRankError
from hpcbench.parallel.abort import AbortWatcher
from hpcbench.parallel.environment import make_fabric
from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.launch import Launch
from hpcbench.parallel.threads import threads_per_rank
from staging.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Device, threads and group of this rank; ``watcher`` ends it when another rank dies."""

    launch: Launch
    group: Group
    fabric: Fabric
    threads: int
    watcher: AbortWatcher

    def together(self, step: Callable[[], T]) -> T:
        """Run ``step`` on all ranks; bad input on one of them stops all, and only the first of them reports it."""
        result, problem = None, None
        try:
            result = step()
        except InputError as error:
            problem = str(error)
        raise_first(self.group.all_gather_object(problem), self.launch.rank)
        return result  # type: ignore[return-value]


def raise_first(problems: list[str | None], rank: int) -> None:
    """Raise ``EveryRankError`` for the first problem that a rank has, if any; the rank that has it reports it."""
    for number, problem in enumerate(problems):
        if problem is not None:
            raise EveryRankError(problem, speaks=rank == number)


@contextmanager
def connect_ranks(launch: Launch, found: RunConfig | InputError) -> Iterator[Ranks]:
    """Threads, device and process group of this rank. An error inside ends all ranks at once.

    A rank that found no configuration brings its ``InputError``, which then ends all ranks, and is reported once.
    """
    config = RunConfig() if isinstance(found, InputError) else found
    fabric = make_fabric(launch, config)
    group = connect(launch, fabric.device, timeout_s=config.parallel.timeout_s)
    if any(problems := group.all_gather_object(str(found) if isinstance(found, InputError) else None)):
        group.close()
        raise_first(problems, launch.rank)
    threads = threads_per_rank(group, config.parallel.threads)
    torch.set_num_threads(threads)
    group.agree("the version of hpcbench", __version__)
    group.agree("the configuration", as_tree(config))
    common: EveryRankError | None = None
    with AbortWatcher(group) as watcher:
        try:
            yield Ranks(group.launch, group, fabric, threads, watcher)
        except EveryRankError as error:
            common = error
    group.close()
    if common is not None:
        raise common
