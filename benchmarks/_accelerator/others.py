"""What is measured besides training steps: optimizers, halos, activation checkpointing, simulators, DALI."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from _accelerator.answers import Say, SkipMeasurementError
from _accelerator.problems import Problem, problem
from _accelerator.roofs import current_device, measure_roofs, spread, synchronizer, timed
from hpcbench.config.schema import OptimConfig
from hpcbench.data.dali_samples import has_dali
from hpcbench.measure.memory import peak_memory_bytes, reset_peak_memory
from hpcbench.optim.registry import create_optimizer, parameter_kinds
from hpcbench.parallel.activation_checkpointing import checkpoint_activations
from hpcbench.parallel.group import default_backend
from hpcbench.parallel.mesh import Mesh
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.peers import Message
from hpcbench.parallel.spatial.layers import own_part
from hpcbench.train.cuda_graph import GraphedStep

Settings = dict[str, Any]
PASSES = {"adamw": 7, "nvlamb": 11, "lamb": 11, "lars": 7, "sgd": 5}
"""Passes over memory of an update that reads and writes each tensor as few times as possible."""


def roofs(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Measure the most that the device can do; later measurements are compared with it."""
    return measure_roofs(current_device(), smoke)


def optimizer(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Time a step over DeepCAM's tensors, operation by operation and captured."""
    device, made = current_device(), problem("deepcam", smoke)
    model = made.model(device, channels_last=True)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter).mul_(0.2)
    name = settings["optimizer"]
    if settings["fused"]:
        config = OptimConfig(name=name, lr=1e-4, weight_decay=0.01)
        groups, kinds = made.task.parameter_groups(model), parameter_kinds(model)
        optimizer = create_optimizer(config, groups, device, device.type != "cpu", kinds)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True, capturable=device.type != "cpu")
    rounds = {"rounds": 3, "at_least_s": 0.01} if smoke else {}
    result: dict[str, Any] = {"eager": spread(timed(optimizer.step, device, **rounds))}
    best = result["eager"]
    if device.type != "cpu":
        nothing = torch.zeros((), device=device)

        def update() -> Tensor:
            optimizer.step()
            return nothing

        graphed = GraphedStep(update, device)
        best = result["captured"] = spread(timed(graphed, device, warmup=8))
    size = sum(parameter.nbytes for parameter in model.parameters())
    result |= {"step_s": best["step_s"], "bytes_per_s": PASSES[name] * size / best["step_s"]}
    if "roofs" in settings:
        result["share_of_copy_bandwidth"] = result["bytes_per_s"] / settings["roofs"]["copy_bytes_per_s"]
    return result


class LoopbackPeers:
    """One of two peers, whose messages a single-process group sends to itself: they cost what messages cost, but the
    numbers that arrive are different ones."""

    def __init__(self, size: int) -> None:
        self.rank, self.size = 0, size

    def start(self, sends: Sequence[Message], receives: Sequence[Message]) -> Callable[[], None]:
        """Fill every receive buffer with a message of its size, or with zeros if none is sent."""
        left = [part for _, part in sends]
        operations = []
        for _, room in receives:
            part = next((part for part in left if part.shape == room.shape and part.dtype == room.dtype), None)
            if part is None:
                room.zero_()
                continue
            left = [other for other in left if other is not part]
            if room.device.type == "cpu":  # gloo sends nothing to itself
                room.copy_(part)
            else:
                operations += [dist.P2POp(dist.isend, part, 0), dist.P2POp(dist.irecv, room, 0)]
        works = dist.batch_isend_irecv(operations) if operations else []
        sent_parts = [part for _, part in sends]

        def wait() -> None:
            for work in works:
                work.wait()
            sent_parts.clear()

        return wait

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum over the one process."""
        dist.all_reduce(tensor)
        return tensor

    def stacked(self, local: Tensor) -> Tensor:
        """Repeat its own tensor for each place."""
        return torch.stack([local] * self.size)


def halos(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Time half a sample in a split model, with halos sent to this process itself, against half without halos."""
    device, made = current_device(), problem(settings["app"], smoke)
    if not dist.is_initialized():
        store = dist.HashStore()
        dist.init_process_group(default_backend(device), store=store, rank=0, world_size=1)
    whole = prepared(made, device)
    result: dict[str, Any] = {}
    for name, size in (("split", 2), ("whole, one rank", 1)):
        model = made.model(device, channels_last=True)
        peers = LoopbackPeers(size)
        mesh = Mesh(MeshShape(1, (size,)), 0, {2: peers}, peers)
        made.application.module("parallel").parallelize(model, made.config, mesh)
        part = own_part(whole, mesh.axes)
        result[name] = spread(timed(lambda: backward(model, part), device, **few(smoke)))  # noqa: B023
    plain = made.model(device, channels_last=True)
    result["whole"] = spread(timed(lambda: backward(plain, whole), device, **few(smoke)))
    result["split_over_half_of_whole"] = result["split"]["step_s"] / (result["whole"]["step_s"] / 2)
    with torch.no_grad():
        one, other = (net.eval()(whole).float() for net in (model, plain))
    result["difference_of_one_rank"] = float((one - other).abs().max() / other.abs().max())
    return result


def few(smoke: bool) -> dict[str, Any]:
    """Return how often to time; fewer times in a smoke run."""
    return {"rounds": 2, "at_least_s": 0.01, "warmup": 1} if smoke else {"rounds": 5}


def prepared(made: Problem, device: torch.device) -> Tensor:
    """Return the inputs of a sample as the model takes them."""
    inputs, targets = (tensor.to(device) for tensor in made.batch(1))
    return made.task.prepare(inputs, targets, None)[0]


def backward(model: nn.Module, inputs: Tensor) -> Tensor:
    """Run a forward and a backward pass in bf16."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(inputs.device.type, torch.bfloat16):
        output = model(inputs)
    loss: Tensor = output.float().square().mean()
    torch.autograd.backward(loss)
    return loss.detach()


def large(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Time a whole universe in one sample, which needs activation checkpointing on smaller devices."""
    device, edge = current_device(), settings["edge"]
    sizes = {"data.sample_size": edge, "simulate.universe_size": edge, "model.conv_layers": 4 if smoke else 7}
    made = problem("cosmoflow", smoke, sizes)
    reset_peak_memory(device)
    model = made.model(device, channels_last=True)
    if settings["checkpointing"]:
        checkpoint_activations(made.application.module("parallel").checkpointed_blocks(model))
    shape = (1, edge, edge, edge, made.config.data.channels)
    counts = torch.randint(0, 4, shape, dtype=torch.int16, device=device).permute(0, 4, 1, 2, 3)

    def step() -> Tensor:
        inputs, _ = made.task.prepare(counts, counts.new_zeros(1, 4), None)
        return backward(model, inputs)

    seconds = timed(step, device, rounds=2 if smoke else 3, at_least_s=0.01, warmup=1)
    loss = float(step())
    assert loss == loss, "the loss is not a number"
    rate = 1 / statistics.median(seconds)
    return {**spread(seconds), "samples_per_s": rate, "peak_memory_bytes": peak_memory_bytes(device), "loss": loss}


def simulator(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Time the simulation of a universe or of a climate sample."""
    device = current_device() if settings["where"] == "device" else torch.device("cpu")
    if settings["where"] == "device" and device.type == "cpu":
        raise SkipMeasurementError("no accelerator")
    made = problem(settings["app"], smoke)
    module, wait = made.application.module("simulate"), synchronizer(device)
    seconds = []
    for index in range(2 if smoke else 4):
        start = time.perf_counter()
        with device if settings["app"] == "deepcam" else contextlib.nullcontext():
            if settings["app"] == "deepcam":
                module.simulate_sample(made.config, "train", index)
            else:
                module.simulate_universe(made.config, "train", index, device)
        wait()
        seconds.append(time.perf_counter() - start)
    return {"sample_s": min(seconds), "all_s": seconds}


def dali(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Measure samples per second of DALI from npy files, and of torch's loader with as many processes or threads."""
    if not has_dali():
        raise SkipMeasurementError("NVIDIA DALI is not installed")
    device = current_device()
    if device.type == "cpu":
        raise SkipMeasurementError("no accelerator that DALI copies to")
    from hpcbench.data.loader import open_loader

    made = problem(settings["app"], smoke, {"data.format": "npy", "data.loader": "dali"})
    made.write_files()
    size, result = settings["batch"], {}
    samples = made.application.module("data").open_split(made.config, "train")
    batches = list(np.arange(len(samples) // size * size).reshape(-1, size))
    for name in ("dali", "torch"):
        made.config.data.loader = name
        loader = open_loader(made.application, made.config, "train", samples, 14, device)
        rates = []
        for _ in range(3):
            begun = time.perf_counter()
            for inputs, targets in loader.load(batches):
                inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            synchronizer(device)()
            rates.append(len(batches) * size / (time.perf_counter() - begun))
        result[name] = {"samples_per_s": rates[-1], "of_each_pass": rates}
    return result


KINDS: dict[str, Callable[[Settings, bool, Say], dict[str, Any]]] = {
    "roofs": roofs, "optimizer": optimizer, "halos": halos, "large": large, "simulator": simulator, "dali": dali,
}  # fmt: skip
