"""One sample split over two processes of a thread each, against one process, and against the bound.

``python benchmarks/spatial.py`` starts the two processes and writes ``benchmarks/results/spatial.json``. A step is a
forward and a backward pass of one sample, the sum of gradients over the processes, and SGD. The bound is the same
without halo exchange: each process has half a sample as if it were a whole one, and only gradients travel. All three
take turns, in the same processes; while one process works alone the other waits. CosmoFlow has 128^3 x 4, DeepCAM
16 x 384 x 576, in float32. Memory of activations is that of the tensors which the forward pass keeps.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _common import compared, write_results
from torch import Tensor, nn
from torch.nn import functional

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.parallel.gradients import GradientReducer
from hpcbench.parallel.group import Group, connect
from hpcbench.parallel.mesh import make_mesh
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.parallel.spatial.exchange import ProcessAxis
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.parallel.spawn import rank_environments
from staging.ranks.launch import detect

SIZES: dict[str, dict[str, Any]] = {
    "cosmoflow": {"model.dropout": 0.0},
    "deepcam": {"data.height": 384, "data.width": 576},
}
LAYOUTS = {5: torch.channels_last_3d, 4: torch.channels_last}
SPEEDUP, OF_BOUND = 1.6, 0.85


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

    def kept_bytes(self) -> int:
        """Bytes that a forward pass keeps for the backward pass, parameters apart."""
        own = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}
        kept: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            loss = self.forward(self.model)
        del loss
        return sum(kept.values())


def build(application: Any, config: Any) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = application.module("model").build_model(config)
    for parameter in model.parameters():
        if parameter.dim() in LAYOUTS:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[parameter.dim()])
    return model


def ways(name: str, group: Group) -> tuple[dict[str, Way], list[TimedAxis]]:
    """The three ways on this rank."""
    application = find_application(name)
    config = resolve(application, "mlperf", overrides=SIZES[name])
    task = application.module("task").build_task(config)
    torch.manual_seed(1)
    if name == "cosmoflow":
        size = (config.data.sample_size,) * 3
        inputs, targets = torch.rand(1, config.data.channels, *size), torch.rand(1, 4)
        half_targets = targets
    else:
        size = (config.data.height, config.data.width)
        inputs, targets = torch.rand(1, len(config.data.channels), *size), torch.randint(3, (1, *size))
        half_targets = targets[:, : size[0] // 2]
    inputs = inputs.contiguous(memory_format=LAYOUTS[inputs.dim()])
    half = inputs[:, :, : size[0] // 2].contiguous(memory_format=LAYOUTS[inputs.dim()])
    split, mesh = build(application, config), make_mesh(group, mesh_shape(2, "2"))
    axes = [TimedAxis(axis) for axis in mesh.axes.values()]
    mesh.axes.update(dict(zip(mesh.axes, axes, strict=True)))
    application.module("parallel").parallelize(split, config, mesh)
    part = own_part(inputs, mesh.axes).contiguous(memory_format=LAYOUTS[inputs.dim()])
    made = {
        "split": Way(split, lambda model: task.loss(model(part), targets) / 2, group),
        "bound": Way(build(application, config), lambda model: task.loss(halved(model, half), half_targets) / 2, group),
    }
    if group.is_main:
        made["whole"] = Way(build(application, config), lambda model: task.loss(model(inputs), targets), None)
    return made, axes


def halved(model: nn.Module, half: Tensor) -> Tensor:
    """The output for half a sample; CosmoFlow's head gets the features of the half twice."""
    if not hasattr(model, "blocks"):
        result: Tensor = model(half)
        return result
    features = model.blocks(half)
    features = torch.cat([features, features], dim=2).permute(0, 2, 3, 4, 1).flatten(1)
    hidden = functional.leaky_relu(model.dense1(features), 0.3)
    hidden = functional.leaky_relu(model.dense2(hidden), 0.3)
    return 1.2 * torch.tanh(model.output(hidden))


class TimedAxis:
    """An axis that adds up the time in which it exchanges."""

    def __init__(self, axis: Any) -> None:
        assert isinstance(axis, ProcessAxis)
        self.axis, self.rank, self.size = axis, axis.rank, axis.size
        self.seconds = 0.0
        self.bytes = 0

    def start(self, sends: Any, receives: Any) -> Callable[[], None]:
        self.bytes += sum(part.nbytes for _, part in sends)
        start = time.perf_counter()
        wait = self.axis.start(sends, receives)
        self.seconds += time.perf_counter() - start

        def timed() -> None:
            start = time.perf_counter()
            wait()
            self.seconds += time.perf_counter() - start

        return timed

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return self.axis.all_reduce(tensor)


def measure(name: str, group: Group, rounds: int) -> dict[str, Any]:
    """Seconds of each way in each round, on all ranks together, and what else is known of them."""
    made, axes = ways(name, group)
    kept = {way: each.kept_bytes() for way, each in made.items() if way != "whole"}
    if group.is_main:
        kept["whole"] = made["whole"].kept_bytes()
    seconds: dict[str, list[float]] = {way: [] for way in ("split", "bound", "whole")}
    shares: list[float] = []
    for number in range(-1, rounds):
        order = list(seconds)[number % 3 :] + list(seconds)[: number % 3]
        for way in order:
            for axis in axes:
                axis.seconds, axis.bytes = 0.0, 0
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
                shares.append(max(group.all_gather_object(sum(axis.seconds for axis in axes))) / took)
                sent = group.max(float(sum(axis.bytes for axis in axes)))
    return {"seconds": seconds, "exchange_share": shares, "halo_bytes_per_rank": sent, "kept_bytes": kept}


def work(names: list[str], rounds: int) -> None:
    """What each process does; rank 0 writes, if all applications were measured."""
    torch.set_num_threads(1)
    group = connect(detect(os.environ), "cpu")
    results: dict[str, Any] = {"threads_per_process": 1, "dtype": "float32", "sizes": SIZES}
    for name in names:
        found = measure(name, group, rounds)
        seconds = found.pop("seconds")
        results[f"{name}_split_over_whole"] = compared("split over 2", "1 process", seconds["split"], seconds["whole"],
                                                       SPEEDUP if name == "cosmoflow" else None)  # fmt: skip
        results[f"{name}_split_over_bound"] = compared(
            "split over 2", "2 half samples", seconds["split"], seconds["bound"], OF_BOUND
        )
        results[f"{name}_bound_over_whole"] = compared(
            "2 half samples", "1 process", seconds["bound"], seconds["whole"]
        )
        results[name] = found
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
        return
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, *sys.argv]
    ranks = [subprocess.Popen(command, env=each) for each in rank_environments(2, environ)]
    raise SystemExit(max(rank.wait() for rank in ranks))


if __name__ == "__main__":
    main()
