"""The order of samples: each exactly once an epoch, the same steps for any number of ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcbench.data.sampler import batch_sizes, epoch_order, rank_batches, rank_share

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
