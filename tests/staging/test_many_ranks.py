"""Rank 0 of thousands: connections whose descriptors have large numbers, and a system that does not allow so many."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from staging.errors import EveryRankError
from staging.ranks.abort import AbortWatcher
from staging.ranks.collective_errors import Ranks
from staging.ranks.connections import SPARE_FILES, Connections, allow_files
from staging.ranks.readable import is_readable
from tests.staging.processes import wait_until
from tests.staging.thread_world import ThreadWorld, run_ranks

SELECTABLE = 1024
"""Descriptors from here on are refused by select(2)."""


@pytest.fixture
def many_open() -> Iterator[None]:
    """All descriptors that select(2) takes are in use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < SELECTABLE + SPARE_FILES + 100:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as opened:
        while (descriptor := os.open(os.devnull, os.O_RDONLY)) < SELECTABLE:
            opened.callback(os.close, descriptor)
        opened.callback(os.close, descriptor)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open")
def test_ranks_meet_and_tell_where_descriptors_have_large_numbers() -> None:
    def watched(world: ThreadWorld) -> list[dict[str, Any]]:
        heard = list[dict[str, Any]]()
        with AbortWatcher(Ranks(world), program="test") as watcher:
            watcher.on_message = heard.append
            world.barrier()
            if world.place.rank != 0:
                watcher.tell({"kind": "news", "rank": world.place.rank})
            wait_until(lambda: world.place.rank != 0 or len(heard) == 2)
            world.barrier()
        return heard

    heard, *_ = run_ranks([3], watched)
    assert sorted(message["rank"] for message in heard) == [1, 2]


@pytest.mark.usefixtures("many_open")
def test_the_end_of_a_pipe_is_seen_where_descriptors_have_large_numbers() -> None:
    reading, writing = os.pipe()
    try:
        assert reading > SELECTABLE
        assert not is_readable(reading, 0.01)
        os.close(writing)
        assert is_readable(reading, 10)
    finally:
        os.close(reading)


def test_a_system_that_allows_too_few_connections_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int]]()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))

    class Many(Ranks):
        """Four ranks that count as many."""

        def __init__(self, world: ThreadWorld) -> None:
            super().__init__(world)
            self.world_size = 4096

    def met(world: ThreadWorld) -> EveryRankError:
        with pytest.raises(EveryRankError) as error:
            Connections().meet(Many(world), "n17", lambda peer, message: None, lambda peers: None)
        return error.value

    errors = run_ranks([4], met)
    assert {str(error) for error in errors} == {str(errors[0])}
    assert str(errors[0]).startswith("a process on n17 may open 4096 files, where one that 4096 ranks watch needs 4")
    assert str(errors[0]).endswith("; raise the hard limit (ulimit -Hn), or start fewer ranks")
    assert [error.speaks for error in errors] == [True, False, False, False]
    assert asked == []


@pytest.mark.parametrize(("ranks", "wanted"), [(4, []), (900, [(5000, 5000)]), (4096, [(5000, 5000)])])
def test_what_is_open_already_counts(
    ranks: int, wanted: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[int, int]]()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 5000))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    assert allow_files(ranks, "n17") == ""
    assert asked == wanted
