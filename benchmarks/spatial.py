"""One sample split over two single-threaded processes, against one process, and against the bound.

``python benchmarks/spatial.py`` starts the two processes and writes ``benchmarks/results/spatial.json``. A step is a
forward and a backward pass of one sample, the sum of gradients over the processes, and SGD. The bound is the same
without halo exchange: each process has half a sample as if it were a whole one, and only gradients travel. Two more
ways are the split model whose messages go through gloo, and one whose messages are left out (its results are wrong, its
work is the same). All ways alternate in the same processes; while one process works alone the other waits. CosmoFlow
has 128^3 x 4, DeepCAM 16 x 384 x 576, in float32.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from _borders import borders_apart
from _common import compared, write_results
from _split import Sample, kept_bytes, laid_out, start_ranks
from torch import Tensor, nn
from torch.nn import functional

from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.mesh import Mesh, make_mesh
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.parallel.node_peers import NodePeers
from hpcbench.parallel.peers import Message, Peers, ProcessPeers
from staging.ranks.launch import detect

SIZES: dict[str, dict[str, Any]] = {
    "cosmoflow": {"model.dropout": 0.0},
    "deepcam": {"data.height": 384, "data.width": 576},
}
SPEEDUP, OF_BOUND = 1.6, 0.85
WAYS = ("split", "gloo", "silent", "bound", "whole")


class Way:
    """A model with its optimizer, and how it takes a step."""

    def __init__(self, model: nn.Module, forward: Callable[[nn.Module], Tensor], group: Group | None) -> None:
        self.model, self.forward = model, forward
        self.reducer = GradientReducer(model.parameters(), group, 25 * 2**20) if group is not None else None
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)

    def step(self) -> None:
        if self.reducer is not None:
            self.reducer.enabled = True
        self.forward(self.model).backward()
        if self.reducer is not None:
            self.reducer.finish()
        self.optimizer.step()
        self.optimizer.zero_grad()


class SilentPeers:
    """Two ranks that send each other nothing: zeros arrive, and sums are a rank's own values."""

    def __init__(self, rank: int) -> None:
        self.rank, self.size = rank, 2

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        for _, room in receives:
            room.zero_()
        return lambda: None

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return tensor

    def stacked(self, local: Tensor) -> Tensor:
        return torch.stack([local, local])


class WatchedPeers:
    """Peers of the chosen kind, with the time that their messages take."""

    def __init__(self, kinds: dict[str, Peers]) -> None:
        self.kinds, self.chosen = kinds, kinds["split"]
        self.rank, self.size = self.chosen.rank, self.chosen.size
        self.halo_s = self.sums_s = 0.0
        self.halo_bytes = 0

    def choose(self, way: str) -> None:
        """Switch to the kind for ``way``, and count from zero."""
        self.chosen = self.kinds.get(way, self.chosen)
        self.halo_s = self.sums_s = 0.0
        self.halo_bytes = 0

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        self.halo_bytes += sum(part.nbytes for _, part in sends)
        start = time.perf_counter()
        wait = self.chosen.start(sends, receives)
        self.halo_s += time.perf_counter() - start

        def timed() -> None:
            start = time.perf_counter()
            wait()
            self.halo_s += time.perf_counter() - start

        return timed

    def all_reduce(self, tensor: Tensor) -> Tensor:
        start = time.perf_counter()
        result = self.chosen.all_reduce(tensor)
        self.sums_s += time.perf_counter() - start
        return result

    def stacked(self, local: Tensor) -> Tensor:
        start = time.perf_counter()
        result = self.chosen.stacked(local)
        self.sums_s += time.perf_counter() - start
        return result


def watched(mesh: Mesh) -> tuple[Mesh, list[WatchedPeers]]:
    """Return the mesh of two ranks with watched peers, which have a kind for each way."""
    assert mesh.statistics is not None
    plain = ProcessPeers(dist.group.WORLD)
    watches = []
    for peers in (*mesh.axes.values(), mesh.statistics):
        assert isinstance(peers, NodePeers), "two processes of one node"
        watches.append(WatchedPeers({"split": peers, "gloo": plain, "silent": SilentPeers(peers.rank)}))
    axes: dict[int, Peers] = dict(zip(mesh.axes, watches[:-1], strict=True))
    return Mesh(mesh.shape, mesh.rank, axes, watches[-1]), watches


def measure(name: str, group: Group, rounds: int) -> dict[str, Any]:
    """Measure the seconds of each way in each round, on all ranks together, and further figures of the split."""
    sample = Sample(name, SIZES[name])
    mesh, watches = watched(make_mesh(group, mesh_shape(2, "2")))
    loss, forward_s = sample.loss(mesh), [0.0]

    def forward(model: nn.Module) -> Tensor:
        result = loss(model)
        forward_s[0] = sum(watch.halo_s for watch in watches)
        return result

    split = Way(sample.model(mesh), forward, group)
    made = {"split": split, "gloo": split, "silent": split, "bound": Way(sample.model(), half(sample), group)}
    if group.is_main:
        made["whole"] = Way(sample.model(), sample.loss(), None)
    apart = borders_apart(split.model, split.forward)
    kept_by_way = {way: kept_bytes(made[way].model, made[way].forward) for way in ("split", "bound")}
    if group.is_main:
        kept_by_way["whole"] = kept_bytes(made["whole"].model, made["whole"].forward)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    shares: dict[str, list[float]] = {"halo": [], "forward_halo": [], "sums": []}
    for number in range(-1, rounds):
        turn = number % len(WAYS)
        for way in WAYS[turn:] + WAYS[:turn]:
            for watch in watches:
                watch.choose(way)
            dist.barrier()
            start = time.perf_counter()
            if way in made:
                made[way].step()
            dist.barrier()
            took = time.perf_counter() - start
            if number < 0:
                continue
            seconds[way].append(took)
            if way == "split":
                shares["forward_halo"].append(max(group.all_gather_object(forward_s[0])) / took)
                shares["halo"].append(max(group.all_gather_object(sum(watch.halo_s for watch in watches))) / took)
                shares["sums"].append(max(group.all_gather_object(sum(watch.sums_s for watch in watches))) / took)
                sent = group.max(float(sum(watch.halo_bytes for watch in watches)))
    return {
        "seconds": seconds, "share_of_step": shares, "halo_bytes_per_rank": sent, "kept_bytes": kept_by_way,
        "borders_apart": apart,
    }  # fmt: skip


def half(sample: Sample) -> Callable[[nn.Module], Tensor]:
    """Return a function that computes the model's loss for half a sample."""
    part = laid_out(sample.inputs[:, :, : sample.inputs.shape[2] // 2])
    targets = sample.targets if sample.name == "cosmoflow" else sample.targets[:, : part.shape[2]]
    return lambda model: sample.task.loss(halved(model, part), targets) / 2


def halved(model: nn.Module, part: Tensor) -> Tensor:
    """The output for half a sample; CosmoFlow's head gets the features of the half twice."""
    if not hasattr(model, "blocks"):
        result: Tensor = model(part)
        return result
    features = model.blocks(part)
    features = torch.cat([features, features], dim=2).permute(0, 2, 3, 4, 1).flatten(1)
    hidden = functional.leaky_relu(model.dense1(features), 0.3)
    hidden = functional.leaky_relu(model.dense2(hidden), 0.3)
    return 1.2 * torch.tanh(model.output(hidden))


def work(names: list[str], rounds: int) -> None:
    """Do the work of one process; rank 0 writes the results if all applications were measured."""
    torch.set_num_threads(1)
    group = connect(detect(os.environ), "cpu")
    results: dict[str, Any] = {"threads_per_process": 1, "dtype": "float32", "sizes": SIZES}
    said = {"split": "split over 2", "gloo": "split, gloo", "silent": "split, no messages", "bound": "2 half samples",
            "whole": "1 process"}  # fmt: skip
    for name in names:
        figures = measure(name, group, rounds)
        seconds = figures.pop("seconds")
        targets = {("split", "whole"): SPEEDUP if name == "cosmoflow" else None, ("split", "bound"): OF_BOUND}
        pairs = [("split", "whole"), ("split", "bound"), ("split", "gloo"), ("silent", "bound"), ("bound", "whole")]
        for one, other in pairs:
            results[f"{name}_{one}_over_{other}"] = compared(
                said[one], said[other], seconds[one], seconds[other], targets.get((one, other))
            )
        results[name] = figures
        dist.barrier()
    if group.is_main:
        for name, value in results.items():
            print(f"{name}: {value}")
        if names == list(SIZES):
            print(f"written to {write_results('spatial', results)}")
    group.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--applications", nargs="+", choices=list(SIZES), default=list(SIZES))
    options = parser.parse_args()
    if "RANK" in os.environ:
        work(options.applications, options.rounds)
    else:
        start_ranks(2)


if __name__ == "__main__":
    main()
