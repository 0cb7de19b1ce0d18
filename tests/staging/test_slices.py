"""Large files are cut where ranks divide: every byte in one slice, and ranks read alike."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staging.planning.plan import Plan, make_plan
from staging.planning.slices import ALIGN_BYTES, CUT_BYTES, LEAST_ALIGN_BYTES, Slices, alignment, cut
from staging.source.listing import Listing, Names

MB = 1_000_000
SIZES = st.lists(st.one_of(st.integers(0, 9), st.integers(0, 3 * CUT_BYTES), st.integers(0, 2**40)), max_size=30)


def plan_of(sizes: list[int], ranks: list[int], placement: Any, path: Any, may_cut: list[bool] | None = None) -> Plan:
    """The plan of files of these sizes, which all may be cut unless said."""
    zeros = np.zeros(len(sizes), np.int64)
    listing = Listing(Names.of(f"{number:04d}" for number in range(len(sizes))), np.array(sizes), zeros, zeros - 1)
    allowed = np.ones(len(sizes), np.bool_) if may_cut is None else np.array(may_cut)
    return make_plan(listing, len(ranks), ranks, placement, path, 3, may_cut=allowed)


def read(plan: Plan) -> list[int]:
    """Bytes that each rank of a lane reads; of the first node where each reads for itself."""
    node = np.maximum(plan.reading_node, 0)
    found = np.zeros((int(node.max()) + 1, plan.lanes), np.int64)
    np.add.at(found, (node, plan.lane), plan.slices.bytes)
    return found.ravel().tolist()


@given(SIZES, st.integers(1, 40), st.lists(st.integers(-2, 2), min_size=30, max_size=30), st.data())
def test_every_byte_is_in_one_slice(sizes: list[int], parts: int, groups: list[int], data: st.DataObject) -> None:
    number = len(sizes)
    may_cut = np.array([data.draw(st.booleans()) for _ in sizes], np.bool_)
    whole = Slices.whole(np.array(sizes, np.int64))
    found, origin = cut(whole, parts, np.array(groups[:number], np.int64), may_cut)
    assert origin.tolist() == found.entry.tolist()
    assert sorted(found.entry.tolist()) == found.entry.tolist()
    for entry, size in enumerate(sizes):
        own = np.flatnonzero(found.entry == entry)
        ranges = list(zip(found.start[own].tolist(), found.stop[own].tolist(), strict=True))
        assert ranges[0][0] == 0
        assert ranges[-1][1] == size
        assert all(before[1] == after[0] for before, after in pairwise(ranges))
        assert all(start % LEAST_ALIGN_BYTES == 0 for start, _ in ranges)
        assert set(found.size[own]) == {size}
        if len(ranges) > 1:
            assert may_cut[entry]
            assert size >= CUT_BYTES
            assert all(start < stop for start, stop in ranges)


@given(st.lists(st.integers(CUT_BYTES, 2**40), min_size=1, max_size=20), st.integers(1, 64))
def test_runs_of_large_files_are_even(sizes: list[int], lanes: int) -> None:
    plan = plan_of(sizes, [lanes], "replicate", "direct")
    found, share = np.array(read(plan)), sum(sizes) / lanes
    assert np.abs(found - share).max() <= max(LEAST_ALIGN_BYTES, min(ALIGN_BYTES, share / 128)) + 1


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_cuts_are_fine_beside_the_share(shares: list[int]) -> None:
    for share, found in zip(shares, alignment(np.array(shares, np.int64)).tolist(), strict=True):
        assert found.bit_count() == 1
        assert LEAST_ALIGN_BYTES <= found <= ALIGN_BYTES
        assert found <= max(share / 128, LEAST_ALIGN_BYTES)
        assert found > min(share / 256, ALIGN_BYTES / 2) - 1


@pytest.mark.parametrize("path", ["direct", "exchange"])
@pytest.mark.parametrize("ranks", [[3], [4], [2, 2], [4, 4], [4, 4, 4, 4]])
@pytest.mark.parametrize(
    "sizes", [[157 * MB, 102 * MB], [260 * MB], [10 * MB], [10 * MB] * 3 + [900 * MB] + [1000] * 500]
)
def test_planned_reads_differ_by_at_most_a_twentieth(sizes: list[int], ranks: list[int], path: Any) -> None:
    found = read(plan_of(sizes, ranks, "replicate", path))
    assert len(found) == (sum(ranks) if path == "exchange" else ranks[0])
    assert max(found) - min(found) <= 0.05 * sum(found) / len(found)
    uncut = read(plan_of(sizes, ranks, "replicate", path, [False] * len(sizes)))
    assert max(uncut) - min(uncut) > 0.2 * sum(found) / len(found)


@given(st.integers(CUT_BYTES, 2**36), st.integers(1, 64), st.integers(1, 64))
def test_reads_of_one_file_differ_by_at_most_a_twentieth_or_four_cuts(size: int, nodes: int, lanes: int) -> None:
    """Four, since a rank's run begins and ends at a cut, and so does its node's."""
    found = read(plan_of([size], [lanes] * nodes, "replicate", "exchange"))
    assert max(found) - min(found) <= max(0.05 * size / (nodes * lanes), 4 * LEAST_ALIGN_BYTES)


@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_a_file_has_one_home_however_many_read_it(path: Any) -> None:
    plan = plan_of([200 * MB, 200 * MB], [2, 2], "shard", path)
    assert sorted(plan.home.tolist()) == [0, 1]
    assert len(plan.slices) >= 4
    if path == "exchange":
        assert set(read(plan)) <= set(range(95 * MB, 105 * MB))
    flow = plan.summary()
    assert flow.bytes == 400 * MB
    assert [node.bytes_landing for node in flow.nodes] == [200 * MB] * 2
    assert sum(node.bytes_read for node in flow.nodes) == 400 * MB


def test_small_files_are_never_cut() -> None:
    plan = plan_of([CUT_BYTES - 1] * 7, [4], "replicate", "direct")
    assert not plan.slices.is_cut.any()
    assert len(plan.slices) == 7
