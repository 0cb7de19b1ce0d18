"""Which ranks a process simulates, and how batch-norm groups form among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.parallel.simulated_ranks import data_ranks, deal_to_nodes
from staging.errors import InputError

COUNTS = st.integers(1, 12)


@given(processes=COUNTS, simulated=COUNTS, group=COUNTS)
def test_groups_are_of_neighbouring_ranks_and_of_the_asked_size(processes: int, simulated: int, group: int) -> None:
    try:
        found = [data_ranks(rank, processes, simulated, group) for rank in range(processes)]
    except InputError:
        assert processes * simulated % group or (simulated % group and group % simulated)
        return
    assert [number for ranks in found for number in ranks.local] == list(range(processes * simulated))
    for ranks in found:
        assert (ranks.total, len(ranks.local)) == (processes * simulated, simulated)
        assert ranks.joined * ranks.processes == group
        assert ranks.passes * ranks.joined == simulated
        assert ranks.passes == 1 or ranks.processes == 1
        assert ranks.local.start % group == 0 or ranks.processes > 1


def test_a_process_is_one_rank_unless_told_otherwise() -> None:
    ranks = data_ranks(2, 3)
    assert (ranks.total, list(ranks.local), ranks.passes, ranks.processes) == (3, [2], 1, 1)


@pytest.mark.parametrize(
    ("processes", "simulated", "group", "words"),
    [
        (4, None, 3, r"train.batchnorm_group_size \(3\) must divide the number of ranks \(4\)"),
        (2, 3, 4, r"train.batchnorm_group_size \(4\) must divide the number of ranks \(6\)"),
        (
            3,
            4,
            6,
            r"train.batchnorm_group_size \(6\) must be a multiple of parallel.simulated_ranks \(4\) or divide it",
        ),
    ],
)
def test_groups_that_cannot_be_formed(processes: int, simulated: int | None, group: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        data_ranks(0, processes, simulated, group)


@given(ranks=st.integers(1, 40), nodes=st.integers(1, 40))
def test_ranks_are_dealt_to_nodes_in_runs(ranks: int, nodes: int) -> None:
    found = deal_to_nodes(ranks, min(nodes, ranks))
    counts = [found.count(node) for node in range(min(nodes, ranks))]
    assert found == sorted(found)
    assert max(counts) - min(counts) <= 1
