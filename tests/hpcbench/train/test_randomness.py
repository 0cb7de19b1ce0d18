"""Draws of layers of torch: a function of seed, epoch, micro-batch and rank."""

from __future__ import annotations

from itertools import product

import torch

from hpcbench.train.randomness import seed_micro_batch


def test_layers_of_torch_draw_by_seed_epoch_micro_batch_and_rank_alone() -> None:
    def drawn(*where: int) -> tuple[float, ...]:
        seed_micro_batch(*where, torch.device("cpu"))
        return tuple(torch.rand(4).tolist())

    places = list(product((0, 7), (1, 2), (0, 1), (0, 1)))
    first = [drawn(*place) for place in places]
    torch.rand(100)
    assert [drawn(*place) for place in reversed(places)] == first[::-1]
    assert len(set(first)) == len(places)
