"""Training steps: how fast they are, with which kernels, and how close to what the device can do."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from _accelerator.answers import Say, SkipMeasurementError
from _accelerator.problems import Batch, Problem, problem
from _accelerator.roofs import ByteCounter, current_device, spread, timed
from hpcbench.characterisation.kernel_times import kernel_times
from hpcbench.config.schema import OptimConfig
from hpcbench.data.device_prefetch import DevicePrefetcher
from hpcbench.measure.flops import count_flops
from hpcbench.measure.memory import peak_memory_bytes, reset_peak_memory
from hpcbench.optim.registry import create_optimizer, parameter_kinds
from hpcbench.train.cuda_graph import GraphedStep
from hpcbench.train.whole_step import WholeStep

TYPES = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
Settings = dict[str, Any]


class Trainer:
    """A model with its optimizer, and one training step of it as the settings say."""

    def __init__(self, made: Problem, settings: Settings, device: torch.device, smoke: bool) -> None:
        self.problem, self.settings, self.device = made, settings, device
        self.model = made.model(device, settings["channels_last"])
        self.forward: Callable[[Tensor], Tensor] = self.model
        if settings["compile"]:
            # Kernels for a processor take minutes to build, and say nothing about an accelerator.
            self.forward = torch.compile(self.model, dynamic=False, backend="aot_eager" if smoke else "inductor")
        self.scaler = torch.amp.GradScaler(device.type, enabled=settings["precision"] == "16-mixed")
        captured = settings["graph"] != "none" and device.type != "cpu"
        self.optimizer = ScaledOptimizer(optimizer_of(self, capturable=captured), self.scaler)
        self.rate = made.config.optim.lr
        if settings["graph"] == "step":
            self.whole = WholeStep(self.gradients, self.optimizer, device, capture=captured)
        else:
            self.backward = GraphedStep(self.gradients, device) if captured else self.gradients

    def gradients(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Prepare a batch as stored, and add its gradients; return its loss."""
        prepared, target = self.problem.task.prepare(inputs, targets, None)
        kind = TYPES.get(self.settings["precision"])
        with torch.autocast(self.device.type, kind, enabled=kind is not None):
            output = self.forward(prepared)
        loss = self.problem.task.loss(output.float(), target)
        torch.autograd.backward(self.scaler.scale(loss))
        return loss.detach()

    def step(self, batch: Batch) -> Tensor:
        """Take one step; return its loss."""
        if self.settings["graph"] == "step":
            return self.whole(self.rate, *batch)
        loss = self.backward(*batch)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.settings["graph"] == "none")
        return loss


class ScaledOptimizer:
    """An optimizer whose gradients a scaler has multiplied."""

    def __init__(self, optimizer: Optimizer, scaler: torch.amp.GradScaler) -> None:
        self.optimizer, self.scaler = optimizer, scaler
        self.param_groups = optimizer.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Like the optimizer's own."""
        self.optimizer.zero_grad(set_to_none)

    def step(self) -> None:
        """Unscale the gradients, step unless they overflowed, and adjust the scale."""
        self.scaler.step(self.optimizer)
        self.scaler.update()


def optimizer_of(trainer: Trainer, capturable: bool) -> Optimizer:
    """Create the optimizer that the settings name, over the task's parameter groups."""
    settings, task, model = trainer.settings, trainer.problem.task, trainer.model
    trainer.problem.config.optim = config = OptimConfig(name=settings["optimizer"], lr=1e-4, weight_decay=0.01)
    groups = task.parameter_groups(model)
    if settings["fused"]:
        return create_optimizer(config, groups, trainer.device, capturable, parameter_kinds(model))
    if settings["optimizer"] == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=0.9, foreach=True)
    return torch.optim.AdamW(groups, lr=config.lr, foreach=True)


def step(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Measure samples per second of one way to train, with what else is known about it."""
    device = current_device()
    if settings["graph"] == "step" and device.type == "cpu":
        say("no graphs on this device: the same step, not captured")
    made, size = problem(settings["app"], smoke), settings["batch"]
    reset_peak_memory(device)
    trainer = Trainer(made, settings, device, smoke)
    source = batches_of(trainer, size, smoke)
    losses: list[Tensor] = []

    def once() -> None:
        losses[:] = [trainer.step(next(source))]

    moved = None
    if settings["graph"] == "none" and not settings["compile"]:
        once()
        with ByteCounter() as counter:
            once()
        moved = counter.bytes
    seconds = timed(once, device, rounds=3 if smoke else 9, at_least_s=0.01 if smoke else 0.3, warmup=2 if smoke else 8)
    loss = float(losses[0])
    assert loss == loss, "the loss is not a number"
    result = {"samples_per_s": size / statistics.median(seconds), **spread(seconds), "loss": loss}
    result["peak_memory_bytes"] = peak_memory_bytes(device)
    result |= shares(made, trainer.model, settings, statistics.median(seconds), moved)
    if settings["profile"]:
        say(result)  # reported first, since the profile is not worth losing it
        result |= kernel_times(once, device)
    return result


def shares(
    made: Problem, model: nn.Module, settings: Settings, seconds: float, moved: int | None
) -> dict[str, float | None]:
    """Operations and bytes per second, and their shares of the device's measured roofs."""
    inputs = made.application.module("shapes").batch_shapes(made.config, 1)[0]
    rate = count_flops(model, inputs).training * settings["batch"] / seconds
    figures: dict[str, float | None] = {"flops_per_s": rate}
    roofs = settings.get("roofs")
    if roofs:
        figures["share_of_matrix_peak"] = rate / roofs["flops_per_s"][settings["precision"]]
    if moved is not None:
        figures |= {"bytes_of_operations": moved, "bytes_of_operations_per_s": moved / seconds}
        if roofs:
            figures["share_of_copy_bandwidth"] = moved / seconds / roofs["copy_bytes_per_s"]
    return figures


def batches_of(trainer: Trainer, size: int, smoke: bool) -> Iterator[Batch]:
    """Yield batches on the device, endlessly: one that stays there, or fresh copies from the host or from files."""
    device, source = trainer.device, trainer.settings["source"]
    pin = device.type != "cpu"
    if source == "files":
        workers = 0 if smoke else max(1, len(os.sched_getaffinity(0)) - 2)
        return DevicePrefetcher(device)(trainer.problem.batches(size, workers, pin))
    batch = trainer.problem.batch(size)
    if source == "memory":
        held = [tuple(t.pin_memory() if pin else t for t in batch) for _ in range(2)]
        return DevicePrefetcher(device)(endless(held))
    return endless([tuple(tensor.to(device) for tensor in batch)])


def endless(batches: list[Batch]) -> Iterator[Batch]:
    """Yield the batches again and again."""
    while True:
        yield from batches


def loop(settings: Settings, smoke: bool, say: Say) -> dict[str, Any]:
    """Run ``hpcbench train`` on files, as a user starts it; throughput over its warm steps."""
    from hpcbench.cli.main import main
    from hpcbench.results.run_folder import RunFolder

    device, made = current_device(), problem(settings["app"], smoke)
    if device.type != "cpu" and not hasattr(torch.get_device_module(device), "CUDAGraph"):
        raise SkipMeasurementError(f"devices of type {device.type} capture no graphs")
    made.write_files()
    folder = Path(os.environ["ACCELERATOR_FOLDER"]) / f"run-{settings['app']}-{settings['batch']}"
    words = ["train", settings["app"], "--preset", "smoke" if smoke else "mlperf", "--run-dir", str(folder)]
    chosen = {
        "data.root": made.root, "data.train_samples": 256, "data.validation_samples": 8, "train.target": "null",
        "train.max_steps": settings["steps"], "train.local_batch_size": settings["batch"], "train.baselines": "false",
        "train.checkpoint_every": 0, "train.cuda_graph": str(device.type != "cpu").lower(), "optim.scaling": "none",
        "submission.division": "open", "data.last_batch": "drop", "schedule.shape": "constant", "schedule.warmup": 0,
    }  # fmt: skip
    if settings["app"] == "cosmoflow":
        chosen |= {"data.compression": "none", "data.augment": "false"}
    words += [word for key, value in chosen.items() for word in (f"--{key}", str(value))]
    code = main(words)
    assert code == 0, f"hpcbench {' '.join(words)} ended with {code}"
    summary = RunFolder.open(folder).read_summary()
    return {
        "samples_per_s": summary.warm_samples_per_s, "steps": summary.steps, "phases_s": summary.phases_s,
        "wall_s": summary.wall_s, "peak_memory_bytes": summary.peak_memory_bytes, "precision": summary.precision,
    }  # fmt: skip
