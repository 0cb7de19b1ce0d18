"""Four ranks, of which two share each sample, train small models while delays are injected; rank 0 prints the figures.

In each case rank 3 sleeps before its messages, or the transport sleeps in messages of one kind: on all ranks, or only
on the second pair of ranks.
"""

from __future__ import annotations

import os

import torch
from delayed_messages import Model, Rank, SlowGroup, SlowPeers, Step, print_of_all, slowly
from torch import nn

from hpcbench.parallel import mesh, shard_messages
from hpcbench.parallel.batchnorm_group import GroupBatchNorm
from hpcbench.parallel.exposed import Recorder, recorded
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import connect
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.peers import Peers
from hpcbench.parallel.sharded import shard_model
from hpcbench.parallel.spatial.layers import split_layers
from staging.ranks.launch import detect
from staging.ranks.process_exit import leave_together

SHAPE = MeshShape(2, (2,))


class MeshGroup(SlowGroup):
    """A group whose sums of gradients take longer."""

    place = "gradients"


class MeshRank(Rank):
    """One of four ranks."""

    sleeper = 3

    def slow_place(self, who: str) -> str:
        """The kind of message; ``pair halo`` makes only the second pair sleep."""
        pair, _, kind = who.rpartition(" ")
        return "" if pair and self.group.rank < 2 else kind


def slow_peers(peers: Peers, recorder: Recorder, kind: str) -> Peers:
    return recorded(SlowPeers(peers, kind), recorder, kind)


def with_gradients(rank: Rank, model: nn.Module) -> list[Step]:
    made = Model(model, torch.randn(2, 1, 8, 8))
    reducer = GradientReducer(model.parameters(), rank.group, 4000, rank.communication)

    def backward() -> None:
        reducer.enabled = True
        made.backward()
        reducer.finish()
        model.zero_grad()

    return [made.forward, backward]


def convolutions(rank: Rank) -> nn.Module:
    made = mesh.make_mesh(rank.group, SHAPE, recorder=rank.communication)
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1))
    split_layers(model, (1, 16, 8), made.axes)
    return model


def split(rank: Rank) -> list[Step]:
    return with_gradients(rank, convolutions(rank))


def statistics(rank: Rank) -> list[Step]:
    """Batch norms of split layers, with nothing between them that needs a halo."""
    peers = mesh.make_mesh(rank.group, SHAPE, recorder=rank.communication).statistics
    assert peers is not None
    norms = [GroupBatchNorm(nn.BatchNorm2d(1), peers) for _ in range(2)]
    return with_gradients(rank, nn.Sequential(norms[0], nn.Conv2d(1, 1, 1), norms[1]))


def sharded(rank: Rank) -> list[Step]:
    model = convolutions(rank)
    shard_model(model, rank.group, SHAPE, 500, rank.communication)
    made = Model(model, torch.randn(2, 1, 8, 8))
    return [made.forward, made.backward]


CASES = {
    "split": (split, ["0 rank", "1 rank", "0 halo", "1 halo", "1 gradients", "0 pair halo"]),
    "statistics": (statistics, ["0 rank", "1 rank", "0 batch_norm", "1 batch_norm", "0 pair batch_norm"]),
    "sharded": (sharded, ["0 rank", "1 rank", "0 halo", "1 halo", "0 sharding", "1 sharding"]),
}
"""How a step of each kind is made; and the pass in which, and the place at which something sleeps."""


def main() -> None:
    torch.set_num_threads(1)
    plain = connect(detect(os.environ), timeout_s=120)
    mesh.recorded = slow_peers
    shard_messages._all_gather = slowly(shard_messages._all_gather, "sharding")
    shard_messages._reduce_scatter = slowly(shard_messages._reduce_scatter, "sharding")
    rank, found = MeshRank(MeshGroup(plain.launch, plain.device, plain.store)), {}
    for kind, (make, delays) in CASES.items():
        passes = make(rank)
        found[f"{kind} none"] = rank.steps("", "", passes)
        usual_s = max(rank.group.all_gather_object(found[f"{kind} none"]["phases"]["wall"]))
        for delay in delays:
            where, _, who = delay.partition(" ")
            found[f"{kind} {delay}"] = rank.steps(who, where, passes, usual_s)
    print_of_all(plain, found)


if __name__ == "__main__":
    main()
    leave_together(0)
