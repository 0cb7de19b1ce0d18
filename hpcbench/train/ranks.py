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
        problems = self.group.all_gather_object(problem)
        failed = [rank for rank, text in enumerate(problems) if text is not None]
        if failed:
            raise EveryRankError(str(problems[failed[0]]), speaks=self.launch.rank == failed[0])
        return result  # type: ignore[return-value]


@contextmanager
def connect_ranks(launch: Launch, config: RunConfig) -> Iterator[Ranks]:
    """Threads, device and process group of this rank. An error inside ends all ranks at once."""
    fabric = make_fabric(launch, config)
    group = connect(launch, fabric.device, timeout_s=config.parallel.timeout_s)
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
