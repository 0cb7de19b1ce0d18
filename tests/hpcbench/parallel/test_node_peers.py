"""Peers on Unix sockets: messages of any size and order arrive, sums are the same everywhere, trouble is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hpcbench.parallel.node_peers import NodePeers
from tests.hpcbench.parallel.spawned import spawned
from tests.hpcbench.parallel.test_ranks import run_program

pytestmark = pytest.mark.usefixtures("forked_processes")

PROGRAMS = Path(__file__).with_name("programs")
TIMEOUT_S = 30.0


def connected(size: int, timeout_s: float = TIMEOUT_S, look_s: float = 0.001) -> list[NodePeers]:
    """Peers of one process, each with a connection to each other."""
    ends: list[dict[int, socket.socket]] = [{} for _ in range(size)]
    for one in range(size):
        for other in range(one):
            ends[one][other], ends[other][one] = socket.socketpair()
    return [NodePeers(rank, end, timeout_s, look_s) for rank, end in enumerate(ends)]


def together(size: int, work: Callable[[NodePeers], Any], **settings: float) -> list[Any]:
    """``work`` on every rank, each in a thread; results by place."""
    peers = connected(size, **settings)
    with ThreadPoolExecutor(size) as pool:
        results = [each.result(TIMEOUT_S) for each in [pool.submit(work, one) for one in peers]]
    for one in peers:
        one.close()
    return results


def content(sender: int, receiver: int, number: int, size: int) -> Tensor:
    return torch.arange(size, dtype=torch.float64) + 1e6 * (100 * sender + 10 * receiver + number)


messages = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 70_000)).filter(lambda each: each[0] != each[1]),
    max_size=6,
)


@settings(max_examples=40)
@given(st.lists(messages, min_size=1, max_size=4), st.sampled_from([0.0, 0.001]))
def test_messages_arrive_in_their_order(exchanges: list[list[tuple[int, int, int]]], look_s: float) -> None:
    """Exchanges one after the other, the later ones under way before the first is waited for."""

    def work(peers: NodePeers) -> list[tuple[Tensor, Tensor]]:
        waits, found = [], []
        for number, exchange in enumerate(exchanges):
            sends, receives = [], []
            for sender, receiver, size in exchange:
                part = content(sender, receiver, number, size)
                if sender == peers.rank:
                    sends.append((receiver, part))
                elif receiver == peers.rank:
                    room = torch.full((size,), -1.0, dtype=torch.float64)
                    receives.append((sender, room))
                    found.append((room, part))
            waits.append(peers.start(sends, receives))
        for wait in waits:
            wait()
        return found

    for pairs in together(3, work, look_s=look_s):
        for room, part in pairs:
            assert torch.equal(room, part)


def test_both_send_more_than_fits_into_a_connection() -> None:
    def work(peers: NodePeers) -> bool:
        room = torch.empty(4 * 2**20)
        peers.start([(1 - peers.rank, torch.full_like(room, peers.rank))], [(1 - peers.rank, room)])()
        return bool((room == 1 - peers.rank).all())

    assert together(2, work) == [True, True]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_sums_are_equal_to_the_bit_on_all_ranks(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    parts = (1000 * torch.randn(4, 5, 3)).to(dtype)

    def work(peers: NodePeers) -> tuple[Tensor, Tensor, bool]:
        tensor = parts[peers.rank].clone()
        total = peers.all_reduce(tensor)
        return total, peers.stacked(parts[peers.rank]), total is tensor

    expected = parts[0] + parts[1] + parts[2] + parts[3]
    for total, rows, in_place in together(4, work):
        assert torch.equal(total, expected)
        assert torch.equal(rows, parts)
        assert in_place


def test_an_exchange_is_under_way_while_the_rank_computes() -> None:
    """A message that fits into the connection is with the other rank before its sender waits."""
    sender, receiver = connected(2)
    sender.start([(1, torch.ones(100))], [])
    room = torch.zeros(100)
    receiver.start([], [(0, room)])()
    assert torch.equal(room, torch.ones(100))


@pytest.mark.parametrize("look_s", [0.0, 1.0])
def test_a_rank_that_has_gone_is_named(look_s: float) -> None:
    peers = connected(3, look_s=look_s)
    wait = peers[0].start([], [(2, torch.empty(3))])
    threading.Timer(0.1, peers[2].close).start()
    with pytest.raises(RuntimeError, match="place 2 of the peers has gone"):
        wait()


@pytest.mark.parametrize("look_s", [0.0, 1.0])
def test_waiting_ends(look_s: float) -> None:
    first, _second = connected(2, timeout_s=0.2, look_s=look_s)
    start = time.perf_counter()
    with pytest.raises(RuntimeError, match=r"place 0 of 2 peers waited 0\.2 s for place 1"):
        first.start([], [(1, torch.empty(3))])()
    assert time.perf_counter() - start >= 0.2


@pytest.mark.slow
def test_processes_of_a_node_meet_and_others_use_the_collectives() -> None:
    """The second time rank 1 has no place for a socket; its pair takes gloo, the other pair sockets again."""
    found = run_program(*spawned(4, PROGRAMS / "peers.py"))
    for rank, each in enumerate(found):
        kinds = [each["together"].pop("kind"), each["apart"].pop("kind")]
        assert kinds == ["NodePeers", "ProcessPeers" if rank < 2 else "NodePeers"]
        first, other = rank - rank % 2, rank ^ 1
        expected = {
            "received": [[other] * 2] * 3,
            "stacked": [[first, 1], [first + 1, 1]],
            "sum": [2 * first + 1.5],
        }
        assert each["together"] == each["apart"] == expected
        assert each["left"] == [], "sockets leave nothing behind"
