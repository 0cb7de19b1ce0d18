"""Nodes that were given one destination are refused, also where locks are per node and all are taken at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from staging.errors import DataError, InputError
from staging.ledger.destination_lock import lock
from staging.options import StageOptions
from staging.probing.probe import probe
from staging.reshuffle import reshuffle
from staging.stage import stage
from tests.staging.processes import contents, make_tree
from tests.staging.thread_world import run_ranks

CALLS: list[Callable[..., Any]] = [
    lambda options, world: stage(options, world, quiet=True),
    lambda options, world: reshuffle(options, 1, world),
    lambda options, world: probe(options, world, budget_s=0.5, quiet=True),
]


@pytest.fixture
def locks_per_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node gets the lock, and two find that nobody has written there, since both write only then."""
    both, truncate, first = threading.Barrier(2), os.ftruncate, iter(range(2))

    def write_at_once(descriptor: int, size: int) -> None:
        if next(first, None) is not None:
            both.wait(10)
        truncate(descriptor, size)

    monkeypatch.setattr("staging.ledger.destination_lock.fcntl.flock", lambda *_: None)
    monkeypatch.setattr("staging.ledger.destination_lock.os.ftruncate", write_at_once)


@pytest.mark.usefixtures("locks_per_node")
@pytest.mark.parametrize("call", CALLS, ids=["stage", "reshuffle", "probe"])
def test_two_nodes_that_lock_in_the_same_instant_are_refused(call: Callable[..., Any], tmp_path: Path) -> None:
    make_tree(tmp_path / "source", 4)
    options = StageOptions(tmp_path / "source", str(tmp_path / "to"))
    with pytest.raises(InputError, match=r"two nodes share this destination \((node0, node1|node1, node0)\); put"):
        run_ranks([1, 1], lambda world: call(options, world))
    assert contents(tmp_path / "to") == {}


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ('{"pid": 1, "node": "n2", "job": "a", "time": "now"}', r"two nodes share this destination \(n2, n1\)"),
        ('{"pid": 1, "node": "n2", "job": "a"}:00 UTC"}', r"two nodes share this destination \(\?, n1\)"),
        (
            '{"pid": 1, "node": "n2", "job": "b", "time": "now"}',
            r"another staging holds it \(pid 1 on node n2 since now",
        ),
    ],
)
def test_who_else_wrote_that_it_holds_a_destination_is_told(written: str, problem: str, tmp_path: Path) -> None:
    """Also in a mixture of what two wrote at once."""
    (tmp_path / ".staging").mkdir()
    with lock(tmp_path, "n1", "a") as held:
        held.refuse_another_node()
        (tmp_path / ".staging/lock").write_text(written)
        with pytest.raises(DataError, match=problem):
            held.refuse_another_node()
        os.truncate(tmp_path / ".staging/lock", 0)  # as on a full disk
        held.refuse_another_node()
        (tmp_path / ".staging/lock").unlink()
        held.refuse_another_node()
    held.refuse_another_node()
