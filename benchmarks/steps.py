"""A training step of both networks in the suite's default configuration, against plain float32 eager PyTorch.

The peer is a straightforward first version: float32, contiguous tensors, the published order of layers, ``torch.optim``
without options; for DeepCAM the same module. Both start from the same weights, and their outputs are compared first.
Each runs in a process of its own, and the two alternate. Run it on an idle machine:
``python benchmarks/steps.py [--rounds 9] [--only cosmoflow|deepcam]``.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from _common import Worker, answers, paired, serve, write_results
from torch import Tensor, nn

import apps.cosmoflow.config
import apps.cosmoflow.model
import apps.cosmoflow.task
import apps.deepcam.config
import apps.deepcam.model
import apps.deepcam.task
from hpcbench.config.optimizers import options_of
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
            conv = copy.deepcopy(block.conv)
            assert isinstance(conv, nn.Module)
            layers += [conv, nn.LeakyReLU(0.3), nn.MaxPool3d(2)]
        dense1, dense2, output = (copy.deepcopy(layer) for layer in (model.dense1, model.dense2, model.output))
        edge = size // 2 ** len(model.blocks)
        kernel = dense1.weight.data.reshape(len(dense1.weight), edge, edge, edge, -1)
        dense1.weight.data = kernel.permute(0, 4, 1, 2, 3).flatten(1).contiguous()
        layers += [nn.Flatten(), dense1, nn.LeakyReLU(0.3), nn.Dropout(dropout)]
        layers += [dense2, nn.LeakyReLU(0.3), nn.Dropout(dropout), output, nn.Tanh()]
        super().__init__(*layers)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return 1.2 * output


def plain_model(problem: Problem) -> nn.Module:
    """Return the peer's model, contiguous, with the same weights."""
    if isinstance(problem.model, apps.cosmoflow.model.CosmoFlow):
        return PlainCosmoFlow(problem.model, problem.config.data.sample_size, problem.config.model.dropout)
    return copy.deepcopy(problem.model)


def plain_step(problem: Problem) -> Callable[[], Tensor]:
    """Return a step of the peer, which returns the loss."""
    model, optim = plain_model(problem), problem.config.optim
    if optim.name == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            model.parameters(), lr=optim.lr, eps=options_of(optim)["eps"]
        )
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=optim.lr, momentum=options_of(optim)["momentum"])

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = problem.task.loss(model(problem.inputs), problem.target)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.detach()

    return step


def our_step(problem: Problem) -> Callable[[], Tensor]:
    """Return a step in the default configuration, which returns the loss."""
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
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def channels_last(model: nn.Module) -> nn.Module:
    """Convert the kernels to channels-last layout, in place."""
    for parameter in model.parameters():
        if parameter.dim() in LAYOUTS:
            parameter.data = parameter.data.contiguous(memory_format=LAYOUTS[parameter.dim()])
    return model


def outputs_agree(problem: Problem) -> float:
    """Return the largest relative difference between both models' float32 outputs in evaluation mode."""
    ours, plain = channels_last(copy.deepcopy(problem.model)).eval(), plain_model(problem).eval()
    with torch.no_grad():
        inputs = problem.inputs.contiguous(memory_format=LAYOUTS[problem.inputs.dim()])
        expected = plain(problem.inputs)
        difference = float((ours(inputs) - expected).abs().max() / expected.abs().max())
    assert difference < 1e-3, f"the two models differ by {difference}"
    return difference


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Measure paired wall times, processor times, operations and peak memory of one network."""
    problem = PROBLEMS[name]()
    difference = outputs_agree(problem)
    precision = resolve_precision("auto", torch.device("cpu"))
    flops = count_flops(problem.model, problem.inputs).training
    del problem
    ours, peer = Worker(name, "ours"), Worker(name, "peer", plain=True)
    result = paired(
        (f"{precision}, channels-last", ours),
        ("float32, contiguous", peer),
        rounds=rounds,
        warmup=2,
        target=TARGETS[name],
    )
    ours.close()
    peer.close()
    print(f"{name}: {result}", flush=True)
    busy = [[answer["processor_s"] for answer in worker.answers[2:]] for worker in (ours, peer)]
    memory = [worker.answers[-1]["peak_bytes"] for worker in (ours, peer)]
    return asdict(result) | {
        "threads": torch.get_num_threads(),
        "ours_processor_s": busy[0],
        "peer_processor_s": busy[1],
        "processor_time_ratio_median": statistics.median(slow / fast for fast, slow in zip(*busy, strict=True)),
        "ours_gflop_per_s": flops / result.ours_median_s / 1e9,
        "output_difference": difference,
        "ours_peak_bytes": memory[0],
        "peer_peak_bytes": memory[1],
        "peak_memory_ratio": memory[0] / memory[1],
    }


def work(name: str, kind: str) -> None:
    """Make steps of one kind in this process, one for each line of standard input."""
    out = answers()
    problem = PROBLEMS[name]()
    step = {"ours": our_step, "peer": plain_step}[kind](problem)
    del problem.model
    serve(step, out)


def main() -> None:
    """Measure and write ``results/steps.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=list(PROBLEMS))
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "KIND"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.manual_seed(1)
    if args.worker:
        work(*args.worker)
        return
    names = [args.only] if args.only else list(PROBLEMS)
    results = {}
    for name in names:
        results[name] = measure(name, args.rounds)
        path = write_results("steps", results)
    print(path)


if __name__ == "__main__":
    main()
