"""The measured memory of a training step on a processor, against what ``hpcbench plan`` counts.

``python benchmarks/planned_memory.py`` trains three sizes of both applications for three steps, each in a process of
its own with one thread, and writes ``benchmarks/results/planned_memory.json``: in float32 and, where the processor has
it, in bfloat16. The measured value is the largest resident set less that before the model was built, in the median of
three processes. Steps of the smallest model and of the optimizer come first, so that libraries and compiled kernels are
already there. The process allocates as ``hpcbench train`` does; with ``--held`` it is measured once more with an
allocator that returns freed tensors at once, which shows the heap's share.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path
from typing import Any

from _common import write_results

from hpcbench.train.huge_pages import use_huge_pages

ROOMY = {"simulate.universe_size": "512", "model.conv_layers": "6"}
SIZES: dict[str, tuple[str, dict[str, str]]] = {
    "cosmoflow 64^3": ("cosmoflow", {"data.sample_size": "64", "model.conv_layers": "4"}),
    "cosmoflow 128^3": ("cosmoflow", {"data.sample_size": "128"}),
    "cosmoflow 192^3": ("cosmoflow", {"data.sample_size": "192", "simulate.universe_size": "384"}),
    "cosmoflow 256^3": ("cosmoflow", {"data.sample_size": "256", **ROOMY}),
    "deepcam 96 x 144": ("deepcam", {"data.height": "96", "data.width": "144"}),
    "deepcam 192 x 288": ("deepcam", {"data.height": "192", "data.width": "288"}),
    "deepcam 384 x 576": ("deepcam", {"data.height": "384", "data.width": "576"}),
}
TOO_SLOW = ("cosmoflow 256^3", "32-true")
"""Its first activation has 2 GiB, for which oneDNN has only a reference kernel that takes minutes."""
STEPS = 3
REPEATS = 3
"""Processes that are measured: where the heap's holes lie differs from one to the next, by 10 % in the smallest."""
ASKED = 0.10


def worker(case: str, precision: str) -> None:
    """Print as JSON what a process of one thread measures and plans."""
    import psutil
    import torch

    from hpcbench.application import find_application
    from hpcbench.config.resolve import resolve
    from hpcbench.measure.memory import process_peak_bytes, reset_peak_memory
    from hpcbench.parallel.heap import keep_freed_memory
    from hpcbench.planning.plan import Machine, plan_mesh

    torch.set_num_threads(1)
    keep_freed_memory()
    name, settings = SIZES[case]
    application, cpu = find_application(name), torch.device("cpu")
    common = {"train.precision": precision, "train.local_batch_size": "1", "parallel.accelerator": "cpu"}
    config = resolve(application, "mlperf", overrides={**common, **settings})
    plan = plan_mesh(application, config, Machine(1, 1))
    small = resolve(application, "smoke", overrides={**common, "optim.name": config.optim.name})
    train(application, small)
    compile_optimizer(config)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = psutil.Process().memory_info().rss
    reset_peak_memory(cpu)
    train(application, config)
    parts = ("parameters", "optimizer", "together", "input", "heap", "activations")
    print(
        json.dumps({
            "measured": process_peak_bytes() - before, "planned": plan.memory,
            **{part: getattr(plan, part) for part in parts},
        })
    )  # fmt: skip


def compile_optimizer(config: Any) -> None:
    """Take a step on a parameter that is large enough for the compiled kernels, whose compiler takes 150 MB."""
    import torch

    from hpcbench.optim.lamb import COMPILED_FROM
    from hpcbench.optim.registry import create_optimizer

    parameter = torch.nn.Parameter(torch.ones(COMPILED_FROM))
    parameter.grad = torch.ones(COMPILED_FROM)
    create_optimizer(config.optim, [{"params": [parameter]}], torch.device("cpu")).step()


def train(application: Any, config: Any) -> None:
    """Build the model and its optimizer, and take some steps on made-up samples."""
    import torch

    from hpcbench.optim.registry import create_optimizer
    from hpcbench.planning.counting import LAYOUTS, autocast, shapes
    from hpcbench.train.build import build_model
    from hpcbench.train.dropout import set_sample_keys

    cpu = torch.device("cpu")
    task = application.module("task").build_task(config)
    model = build_model(application, config, cpu, 0)
    optimizer = create_optimizer(config.optim, task.parameter_groups(model), cpu)
    shaped, wanted = shapes(application, config, config.train.local_batch_size)
    inputs = torch.rand(shaped.shape).contiguous(memory_format=LAYOUTS[shaped.dim()])
    targets = torch.zeros(wanted.shape, dtype=wanted.dtype)
    for _ in range(STEPS):
        set_sample_keys(model, torch.arange(len(inputs)))
        with autocast(config):
            output = model(inputs)
        task.loss(output.float(), targets).backward()
        del output
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def measured(case: str, precision: str, *, at_once: bool = False) -> dict[str, int]:
    """Run ``worker`` in a process of its own; with ``at_once`` its allocator returns freed tensors at once."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    use_huge_pages(environment)
    if at_once:
        environment["MALLOC_MMAP_THRESHOLD_"] = "65536"
    command = [sys.executable, __file__, "--worker", case, precision]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    figures: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return figures


def precisions() -> tuple[str, ...]:
    """float32, and bfloat16 where oneDNN has it; torch's own loops would take half an hour."""
    import torch

    return ("32-true", "bf16-mixed") if torch.ops.mkldnn._is_mkldnn_bf16_supported() else ("32-true",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--held", action="store_true", help="also with an allocator that returns memory at once")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    results: dict[str, Any] = {}
    for case in options.cases:
        for precision in precisions():
            if (case, precision) == TOO_SLOW:
                continue
            processes = sorted((measured(case, precision) for _ in range(REPEATS)), key=itemgetter("measured"))
            figures: dict[str, Any] = dict(processes[REPEATS // 2])
            if options.held:
                figures["held"] = measured(case, precision, at_once=True)["measured"]
            mib = {key: round(value / 2**20) for key, value in figures.items()}
            figures["planned_of_measured"] = figures["planned"] / figures["measured"]
            figures["of_each_process"] = [round(one["planned"] / one["measured"], 4) for one in processes]
            results[f"{case}, {precision}"] = figures
            if options.cases == list(SIZES):  # after each case, since the last ones take long
                write_results("planned_memory", {"asked": ASKED, "cases": results})
            print(f"{case}, {precision}: {figures['planned_of_measured']:.3f} of measured; MiB {mib}", flush=True)
    missed = [case for case, figures in results.items() if abs(figures["planned_of_measured"] - 1) > ASKED]
    raise SystemExit(f"missed by more than {ASKED:.0%}: {'; '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
