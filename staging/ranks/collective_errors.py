"""Failing together: a problem on one rank stops all of them, is reported once, and leaves no rank waiting."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from staging.errors import EveryRankError, InputError
from staging.ranks.abort import AbortWatcher
from staging.ranks.host_addresses import own_addresses
from staging.ranks.world import World

T = TypeVar("T")

Found = tuple[str, str | None]
"""The node of a rank, empty if naming it says nothing, and its problem or ``None``."""


def together(world: World, step: Callable[[], T]) -> T:
    """Run ``step`` on all ranks and return what it returns; collective.

    Bad input (``InputError``) on one of them stops all: the first problem is raised on every rank as
    ``EveryRankError``, preceded by its node's name unless all ranks have it, and only the rank that has it
    ``speaks``. Other errors are not gathered; they end all ranks through ``watch``.
    """
    place = world.place
    if place.size == 1:
        return step()
    return run_together(step, place.rank, world.all_gather, place.node_name)


def run_together(step: Callable[[], T], rank: int, all_gather: Callable[[Found], list[Found]], node: str = "") -> T:
    """``together`` for ranks that communicate by ``all_gather``; ``node`` is the name of this rank's node."""
    result, problem = None, None
    try:
        result = step()
    except InputError as error:
        problem = str(error)
    raise_first(all_gather((node, problem)), rank)
    return result  # type: ignore[return-value]


def raise_first(problems: Sequence[Found], rank: int) -> None:
    """Raise ``EveryRankError`` for the first problem that a rank has, if any; the rank that has it reports it."""
    everywhere = len({problem for _, problem in problems}) == 1
    for number, (node, problem) in enumerate(problems):
        if problem is not None:
            named = everywhere or not node or names(problem, node)
            raise EveryRankError(problem if named else f"{node}: {problem}", speaks=rank == number)


def names(problem: str, node: str) -> bool:
    """Whether a text names the node as a separate word, and not as a part of a path or of another word."""
    return re.search(rf"(?<![\w./-]){re.escape(node)}(?![\w/-]|\.\w)", problem) is not None


class Ranks:
    """A ``World`` as the watcher sees it."""

    def __init__(self, world: World) -> None:
        self.rank = world.place.rank
        self.world_size = world.place.size
        self._world = world

    def addresses(self) -> list[str]:
        """Addresses of this host, best first."""
        return own_addresses(one_node=self._world.place.nodes == 1)

    def broadcast_object(self, value: T) -> T:
        """The value of rank 0."""
        return self._world.broadcast(value)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._world.barrier()


def watch(
    world: World, program: str = "staging", on_abort: Callable[[str], None] | None = None, *, node: str = "",
    until_exit: bool = False,
) -> AbortWatcher:  # fmt: skip
    """A context in which an error on one rank of ``world``, or its death, ends all ranks; collective.

    ``node`` is the name of this rank's node if it is not that in ``world``; ``until_exit`` is as in
    ``AbortWatcher``.
    """
    node_name = node or world.place.node_name
    return AbortWatcher(Ranks(world), on_abort, program=program, node=node_name, until_exit=until_exit)
