"""A training step of both networks in the suite's default configuration, against plain float32 eager PyTorch.

The peer is what one writes first: float32, contiguous tensors, the published order of layers, ``torch.optim`` without
options; for DeepCAM the same module. Both start from the same weights, and their outputs are compared first. Run it on
an idle machine: ``python benchmarks/steps.py [--rounds 9] [--only cosmoflow|deepcam]``.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from _common import Paired, paired, write_results
from torch import Tensor, nn

import apps.cosmoflow.config
import apps.cosmoflow.model
import apps.cosmoflow.task
import apps.deepcam.config
import apps.deepcam.model
import apps.deepcam.task
from hpcbench.measure.flops import count_flops
from hpcbench.optim.registry import create_optimizer
from hpcbench.parallel.precision import resolve_precision
from hpcbench.train.dropout import set_sample_keys
from hpcbench.train.randomness import sample_keys
from hpcbench.train.task import Task

BATCH = 2
TARGETS = {"cosmoflow": 2.0, "deepcam": 1.6}
LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass
class Problem:
    """A network with its task, a batch as the task prepares it, and the run's configuration."""

    config: Any
    task: Task
    model: nn.Module
    inputs: Tensor
    target: Tensor


def cosmoflow() -> Problem:
    """CosmoFlow at 64^3 x 4."""
    config = apps.cosmoflow.config.Config()
    config.data.sample_size = 64
    inputs, target = torch.rand(BATCH, 4, 64, 64, 64), torch.rand(BATCH, 4)
    task = apps.cosmoflow.task.build_task(config)
    return Problem(config, task, apps.cosmoflow.model.build_model(config), inputs, target)


def deepcam() -> Problem:
    """DeepCAM at 16 x 192 x 288, with AdamW."""
    config = apps.deepcam.config.Config()
    config.data.height, config.data.width, config.optim.name = 192, 288, "adamw"
    inputs, target = torch.rand(BATCH, 16, 192, 288), torch.randint(0, 3, (BATCH, 192, 288))
    task = apps.deepcam.task.build_task(config)
    return Problem(config, task, apps.deepcam.model.build_model(config), inputs, target)


PROBLEMS: dict[str, Callable[[], Problem]] = {"cosmoflow": cosmoflow, "deepcam": deepcam}


class PlainCosmoFlow(nn.Sequential):
    """The published order of layers, with the weights of ``model``."""

    def __init__(self, model: apps.cosmoflow.model.CosmoFlow, size: int, dropout: float) -> None:
        layers: list[nn.Module] = []
        for block in model.blocks:
            layers += [copy.deepcopy(block.conv), nn.LeakyReLU(0.3), nn.MaxPool3d(2)]
        dense1, dense2, output = (copy.deepcopy(layer) for layer in (model.dense1, model.dense2, model.output))
        edge = size // 2 ** len(model.blocks)
        kernel = dense1.weight.data.reshape(len(dense1.weight), edge, edge, edge, -1)
        dense1.weight.data = kernel.permute(0, 4, 1, 2, 3).flatten(1).contiguous()
        layers += [nn.Flatten(), dense1, nn.LeakyReLU(0.3), nn.Dropout(dropout)]
        layers += [dense2, nn.LeakyReLU(0.3), nn.Dropout(dropout), output, nn.Tanh()]
        super().__init__(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return 1.2 * super().forward(x)


def plain_model(problem: Problem) -> nn.Module:
    """The peer's model, contiguous, from the same weights."""
    if isinstance(problem.model, apps.cosmoflow.model.CosmoFlow):
        return PlainCosmoFlow(problem.model, problem.config.data.sample_size, problem.config.model.dropout)
    return copy.deepcopy(problem.model)


def plain_step(problem: Problem) -> Callable[[], Tensor]:
    """A step of the peer; returns the loss."""
    model, optim = plain_model(problem), problem.config.optim
    if optim.name == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=optim.lr, eps=optim.eps)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=optim.lr, momentum=optim.momentum)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = problem.task.loss(model(problem.inputs), problem.target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def our_step(problem: Problem) -> Callable[[], Tensor]:
    """A step in the default configuration; returns the loss."""
    device = torch.device("cpu")
    precision = resolve_precision("auto", device)
    model = channels_last(copy.deepcopy(problem.model))
    inputs = problem.inputs.contiguous(memory_format=LAYOUTS[problem.inputs.dim()])
    optimizer = create_optimizer(problem.config.optim, problem.task.parameter_groups(model), device)
    keys = sample_keys(1, 1, torch.arange(BATCH))

    def step() -> Tensor:
        set_sample_keys(model, keys)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
            output = model(inputs)
        loss = problem.task.loss(output.float(), problem.target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return loss.detach()

    return step


def channels_last(model: nn.Module) -> nn.Module:
    """Kernels in channels-last layout."""
    for parameter in model.parameters():
        if parameter.dim() in LAYOUTS:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[parameter.dim()])
    return model


def outputs_agree(problem: Problem) -> float:
    """Largest relative difference of both models' float32 outputs in evaluation."""
    ours, plain = channels_last(copy.deepcopy(problem.model)).eval(), plain_model(problem).eval()
    with torch.no_grad():
        inputs = problem.inputs.contiguous(memory_format=LAYOUTS[problem.inputs.dim()])
        expected = plain(problem.inputs)
        difference = float((ours(inputs) - expected).abs().max() / expected.abs().max())
    assert difference < 1e-3, f"the two models differ by {difference}"
    return difference


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Paired wall times, processor times, operations and peak memory of one network."""
    problem = PROBLEMS[name]()
    difference = outputs_agree(problem)
    precision = resolve_precision("auto", torch.device("cpu"))
    busy: dict[str, list[float]] = {"ours": [], "peer": []}

    def timed(kind: str, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def run() -> Tensor:
            start = time.process_time()
            loss = step()
            busy[kind].append(time.process_time() - start)
            return loss

        return run

    result: Paired = paired(
        (f"{precision}, channels-last", timed("ours", our_step(problem))),
        ("float32, contiguous", timed("peer", plain_step(problem))),
        rounds=rounds,
        warmup=1,
        target=TARGETS[name],
    )
    flops = count_flops(problem.model, problem.inputs).training
    print(f"{name}: {result}", flush=True)
    memory = {kind: peak_memory(name, kind) for kind in busy}
    return asdict(result) | {
        "threads": torch.get_num_threads(),
        "processor_s": {kind: values[1:] for kind, values in busy.items()},
        "processor_time_ratio_median": statistics.median(
            peer / ours for ours, peer in zip(busy["ours"][1:], busy["peer"][1:], strict=True)
        ),
        "ours_gflop_per_s": flops / result.ours_median_s / 1e9,
        "output_difference": difference,
        "peak_memory_bytes": memory,
        "peak_memory_ratio": memory["ours"] / memory["peer"],
    }


def peak_memory(name: str, kind: str) -> int:
    """Peak resident memory of a process that does three steps, in bytes."""
    command = [sys.executable, str(Path(__file__).resolve()), "--memory", name, kind]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


def print_peak_memory(name: str, kind: str) -> None:
    """Three steps of one kind alone, then this process's peak resident memory."""
    problem = PROBLEMS[name]()
    step = {"ours": our_step, "peer": plain_step}[kind](problem)
    del problem.model
    for _ in range(3):
        step()
    # Not getrusage: its peak starts from that of the process that started this one.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].split()[0]) * 1024)


def main() -> None:
    """Measure and write ``results/steps.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=list(PROBLEMS))
    parser.add_argument("--memory", nargs=2, metavar=("NAME", "KIND"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.manual_seed(1)
    if args.memory:
        print_peak_memory(*args.memory)
        return
    names = [args.only] if args.only else list(PROBLEMS)
    path = write_results("steps", {name: measure(name, args.rounds) for name in names})
    print(path)


if __name__ == "__main__":
    main()
