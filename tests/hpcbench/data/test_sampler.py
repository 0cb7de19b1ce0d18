"""The order of samples: each exactly once an epoch, the same steps for any number of ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.data.sampler import (
    Shards,
    batch_sizes,
    epoch_batches,
    epoch_order,
    epoch_sizes,
    in_passes,
    rank_batches,
    rank_share,
)

COUNTS = st.integers(1, 200)
RANKS = st.integers(1, 9)


@given(samples=COUNTS, seed=st.integers(0, 2**32), epoch=st.integers(1, 1000))
def test_an_epoch_is_a_permutation(samples: int, seed: int, epoch: int) -> None:
    assert sorted(epoch_order(samples, seed, epoch)) == list(range(samples))


def test_orders_differ_between_epochs_and_seeds_but_repeat() -> None:
    first = epoch_order(1000, 1, 1)
    assert (first == epoch_order(1000, 1, 1)).all()
    for other in (epoch_order(1000, 1, 2), epoch_order(1000, 2, 1)):
        # Two independent permutations agree at one place on average.
        assert (first == other).sum() < 10


@given(samples=COUNTS, ranks=RANKS, local=st.integers(1, 7), epoch=st.integers(1, 5))
def test_every_sample_is_seen_exactly_once(samples: int, ranks: int, local: int, epoch: int) -> None:
    order = epoch_order(samples, 7, epoch)
    seen = [rank_batches(order, rank, ranks, local, "keep") for rank in range(ranks)]
    assert sorted(np.concatenate([batch for batches in seen for batch in batches])) == list(range(samples))
    assert {len(batches) for batches in seen} == {len(batch_sizes(samples, ranks * local, "keep"))}
    for number, size in enumerate(batch_sizes(samples, ranks * local, "keep")):
        parts = [len(batches[number]) for batches in seen]
        assert sum(parts) == size
        assert max(parts) - min(parts) <= 1


@given(samples=COUNTS, local=st.integers(1, 6), split=st.sampled_from([2, 3, 4]))
def test_a_step_holds_the_same_samples_for_any_number_of_ranks(samples: int, local: int, split: int) -> None:
    order = epoch_order(samples, 3, 1)
    one = rank_batches(order, 0, 1, local * split, "keep")
    many = [rank_batches(order, rank, split, local, "keep") for rank in range(split)]
    for number, together in enumerate(one):
        assert (np.concatenate([batches[number] for batches in many]) == together).all()


@pytest.mark.parametrize(("samples", "step", "kept", "dropped"), [(10, 4, [4, 4, 2], [4, 4]), (8, 4, [4, 4], [4, 4])])
def test_the_last_batch_is_kept_or_dropped(samples: int, step: int, kept: list[int], dropped: list[int]) -> None:
    assert batch_sizes(samples, step, "keep") == kept
    assert batch_sizes(samples, step, "drop") == dropped
    order = epoch_order(samples, 1, 1)
    assert [len(batch) for batch in rank_batches(order, 0, 1, step, "drop")] == dropped


@given(samples=COUNTS, ranks=RANKS)
def test_evaluation_shares_cover_the_set_in_order(samples: int, ranks: int) -> None:
    shares = [rank_share(samples, rank, ranks) for rank in range(ranks)]
    assert (np.concatenate(shares) == np.arange(samples)).all()
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@st.composite
def sharded(draw: st.DrawFn) -> Shards:
    """Up to four nodes of up to three ranks in any order, and samples that lie anywhere."""
    nodes = draw(st.integers(1, 4))
    ranks = draw(st.permutations([*range(nodes), *draw(st.lists(st.integers(0, nodes - 1), max_size=6))]))
    return Shards(np.array(draw(st.lists(st.integers(0, nodes - 1), min_size=1, max_size=120))), tuple(ranks))


@given(shards=sharded(), local=st.integers(1, 5), last=st.sampled_from(["keep", "drop"]), epoch=st.integers(1, 9))
def test_shards_are_seen_once_each_on_their_own_node(shards: Shards, local: int, last: str, epoch: int) -> None:
    samples, ranks = len(shards.home), len(shards.node)
    seen = [epoch_batches(samples, 7, epoch, [rank], ranks, local, last, shards)[0] for rank in range(ranks)]
    sizes = epoch_sizes(samples, ranks, local, last, shards)
    assert {len(batches) for batches in seen} == {len(sizes)}
    assert [sum(len(batches[step]) for batches in seen) for step in range(len(sizes))] == sizes
    for rank, batches in enumerate(seen):
        assert all((shards.home[batch] == shards.node[rank]).all() for batch in batches)
        assert all(len(batch) == local if last == "drop" else len(batch) <= local for batch in batches)
    every = np.concatenate([np.concatenate([*batches, np.zeros(0, np.int64)]) for batches in seen])
    if last == "keep":
        assert sorted(every) == list(range(samples))
    else:
        assert len(set(every)) == len(every) == sum(sizes)


@given(samples=COUNTS, ranks=RANKS, local=st.integers(1, 7), last=st.sampled_from(["keep", "drop"]))
def test_one_node_has_the_order_of_an_unsharded_set(samples: int, ranks: int, local: int, last: str) -> None:
    shards = Shards(np.zeros(samples, np.int64), (0,) * ranks)
    assert epoch_sizes(samples, ranks, local, last, shards) == epoch_sizes(samples, ranks, local, last)
    for rank in range(ranks):
        one, two = (epoch_batches(samples, 3, 2, [rank], ranks, local, last, each)[0] for each in (None, shards))
        assert [batch.tolist() for batch in one] == [batch.tolist() for batch in two]


def test_nodes_shuffle_differently_and_each_by_seed_epoch_and_node_alone() -> None:
    orders = {tuple(epoch_order(50, *key)) for key in [(1, 1), (1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1)]}
    assert len(orders) == 5
    few, many = Shards(np.arange(40) % 2, (0, 1)), Shards(np.append(np.arange(40) % 2, [1] * 9), (0, 1, 1))
    assert (
        epoch_batches(40, 1, 1, [0], 2, 5, "keep", few)[0][0] == epoch_batches(49, 1, 1, [0], 3, 5, "keep", many)[0][0]
    ).all()


def test_a_node_that_is_done_waits_with_empty_batches() -> None:
    shards = Shards(np.array([0] * 5 + [1]), (0, 1))
    assert epoch_sizes(6, 2, 2, "keep", shards) == [3, 2, 1]
    assert [len(batch) for batch in epoch_batches(6, 1, 1, [1], 2, 2, "keep", shards)[0]] == [1, 0, 0]
    assert epoch_sizes(6, 2, 2, "drop", shards) == []


@given(samples=COUNTS, ranks=st.sampled_from([6, 12]), together=st.integers(1, 3), sharded=st.booleans())
def test_simulated_ranks_take_turns_in_each_micro_batch(samples: int, ranks: int, together: int, sharded: bool) -> None:
    shards = Shards(np.arange(samples) % 2, tuple(2 * rank // ranks for rank in range(ranks))) if sharded else None
    own = range(ranks // 2, ranks // 2 + together * (ranks // 2 // together))
    parts = epoch_batches(samples, 3, 1, own, ranks, 2, "keep", shards)
    done = in_passes(parts, together)
    turns = len(own) // together
    for number, batch in enumerate(done):
        micro, turn = divmod(number, turns)
        group = parts[turn * together : (turn + 1) * together]
        assert batch.tolist() == [sample for rank in group for sample in rank[micro]]
    assert len(done) == turns * len(epoch_sizes(samples, ranks, 2, "keep", shards))
    each = [epoch_batches(samples, 3, 1, [rank], ranks, 2, "keep", shards)[0] for rank in own]
    assert [[part.tolist() for part in rank] for rank in each] == [[part.tolist() for part in rank] for rank in parts]
