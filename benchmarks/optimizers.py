"""A step of LAMB and LARS over DeepCAM's 301 tensors against torch's fused AdamW, and timm's and another LAMB.

``python benchmarks/optimizers.py`` writes ``benchmarks/results/optimizers.json``, or ``optimizers_gpu.json`` if torch
finds an accelerator; there every step is timed both as it is and captured in a graph. All alternate in one process, on
parameters of their own. Before each step the gradients are refilled, with a global norm above 1, so that clipping,
which changes them, is always active. Processor time, which busy neighbours disturb less, is given beside the clock.
``timm`` is compared if it is installed (only its module is loaded, without what the package imports). Memory is that of
a step with its parameters, state and buffers; what loading and compiling its code took is given separately.

What limits a step: AdamW reads weight, gradient and two moments and writes three of them, 7 passes over memory. LAMB
with clipping takes 11: the gradients' norm comes first, and the update's norm before a weight may change, with the
weight partly in the cache. Without compiled loops (Numba, Triton) the update and the norms are separate passes.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import psutil
import torch
from _common import Paired, compared, write_results
from pytorch_optimizer import Lamb as OtherLamb
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

import apps.deepcam.config
import apps.deepcam.model
import hpcbench.optim.lamb
from hpcbench.config.schema import OptimConfig
from hpcbench.measure.memory import peak_memory_bytes, reset_peak_memory
from hpcbench.optim.registry import create_optimizer, parameter_kinds

PEER = "torch AdamW, fused"
CPU_BOUND, GPU_BOUND, TIMM_BOUND, MEMORY_BOUND = 1.85, 1.6, 2.0, 1.10
PASSES = {"adamw": 7, "lamb": 11}


def shapes() -> tuple[list[torch.Size], list[str | None]]:
    """Return the shapes of DeepCAM's parameters, and which are biases and norms."""
    model = apps.deepcam.model.build_model(apps.deepcam.config.Config())
    kinds = parameter_kinds(model)
    parameters = list(model.parameters())
    return [parameter.shape for parameter in parameters], [kinds.get(parameter) for parameter in parameters]


def weights(sizes: list[torch.Size], device: torch.device) -> list[nn.Parameter]:
    """Make parameters of these shapes with gradients, the same at every call."""
    torch.manual_seed(0)
    made = [nn.Parameter(torch.randn(size).mul_(0.05).to(device)) for size in sizes]
    for parameter in made:
        parameter.grad = torch.empty_like(parameter)
    return made


def fill_gradients(optimizer: Optimizer) -> None:
    """Fill the gradients to a global norm of about 75."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            assert parameter.grad is not None
            torch.mul(parameter.detach(), 0.2, out=parameter.grad).add_(0.001)


def timm_lamb() -> type[Optimizer] | None:
    """timm's LAMB, if it is installed; the package itself is not imported, since that imports torchvision."""
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.submodule_search_locations is None:
        return None
    root = spec.submodule_search_locations[0]
    for name, folder in (("timm", root), ("timm.optim", f"{root}/optim")):
        package = ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
    lamb: type[Optimizer] = importlib.import_module("timm.optim.lamb").Lamb
    return lamb


Builder = Callable[[list[torch.Size], list[str | None]], Optimizer]


def builders(device: torch.device) -> dict[str, Builder]:
    """Return functions that make each optimizer with its own parameters, of given shapes and kinds."""
    capturable = device.type != "cpu"

    def ours(name: str, sizes: list[torch.Size], kinds: list[str | None]) -> Optimizer:
        made = weights(sizes, device)
        named = {parameter: kind for parameter, kind in zip(made, kinds, strict=True) if kind}
        config = OptimConfig(name=name, lr=0.001, weight_decay=0.01)
        return create_optimizer(config, [{"params": made}], device, capturable, named)

    def theirs(kind: Callable[..., Optimizer], sizes: list[torch.Size], _: object, **options: Any) -> Optimizer:
        return kind(weights(sizes, device), lr=0.001, weight_decay=0.01, **options)

    builders_by_name: dict[str, Builder] = {PEER: partial(theirs, AdamW, fused=True, capturable=capturable)}
    builders_by_name |= {name: partial(ours, name) for name in ("nvlamb", "lamb", "lars")}
    builders_by_name["pytorch-optimizer Lamb"] = partial(theirs, OtherLamb, weight_decouple=False, pre_norm=True)
    if (timm := timm_lamb()) is not None:
        builders_by_name["timm Lamb"] = partial(theirs, timm)
    return builders_by_name


def in_turns(
    ways: dict[str, Callable[[], Any]], made: dict[str, Optimizer], rounds: int, synchronize: Callable[[], None]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Clock and processor seconds of each way in each round, after three steps of each to warm up."""
    clock: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(-3, rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            fill_gradients(made[name])
            synchronize()
            start, busy = time.perf_counter(), time.process_time()
            ways[name]()
            synchronize()
            if number >= 0:
                clock[name].append(time.perf_counter() - start)
                processor[name].append(time.process_time() - busy)
    return clock, processor


def captured(optimizer: Optimizer) -> Callable[[], None]:
    """Capture a step in a graph; return its replay."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    fill_gradients(optimizer)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        optimizer.step()
    return graph.replay


def comparisons(clock: dict[str, list[float]], bound: float, tail: str = "") -> dict[str, Paired]:
    """Compare each way with the fused AdamW, and nvlamb with the other LAMBs."""
    pairs = {}
    for name in ("nvlamb", "lamb", "lars"):
        asked = None if name == "lars" else 1 / bound
        pairs[f"{name}_against_adamw{tail}"] = compared(name, PEER, clock[name], clock[PEER], asked)
    for name, asked in (("timm Lamb", TIMM_BOUND), ("pytorch-optimizer Lamb", None)):
        if name in clock:
            key = f"nvlamb_against_{name.split()[0]}{tail}"
            pairs[key] = compared("nvlamb", name, clock["nvlamb"], clock[name], asked)
    return pairs


def state_bytes(optimizer: Optimizer) -> int:
    """Bytes of the state of all parameters."""
    tensors = [value for values in optimizer.state.values() for value in values.values() if isinstance(value, Tensor)]
    return sum(tensor.nbytes for tensor in tensors)


def peak_bytes_of(name: str) -> tuple[int, int]:
    """Memory of the code of a step, and peak of three steps with all that they need, in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--peak-of", name]
    code, peak = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-2:]
    return int(code), int(peak)


def measure_peak(name: str, device: torch.device) -> tuple[int, int]:
    """Measure in this process: what a step over a few numbers adds to memory, and then the step of the model."""
    AdamW([nn.Parameter(torch.ones(8, device=device))], fused=True).step()
    start = occupied(device)
    build = builders(device)
    with patch.object(hpcbench.optim.lamb, "COMPILED_FROM", 0):
        small = build[name]([torch.Size([8]), torch.Size([4, 2])], [None, None])
        fill_gradients(small)
        small.step()
    loaded = occupied(device)
    reset_peak_memory(device)
    optimizer = build[name](*shapes())
    for _ in range(3):
        fill_gradients(optimizer)
        optimizer.step()
    return loaded - start, peak_memory_bytes(device) - loaded


def occupied(device: torch.device) -> int:
    """Bytes of memory that this process holds."""
    return psutil.Process().memory_info().rss if device.type == "cpu" else torch.cuda.memory_allocated()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if options.peak_of:
        print(*measure_peak(options.peak_of, device))
        return
    synchronize: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    made = {name: build(*shapes()) for name, build in builders(device).items()}
    results: dict[str, Any] = {"device": str(device), "threads": torch.get_num_threads()}
    clock, processor = in_turns(
        {name: optimizer.step for name, optimizer in made.items()}, made, options.rounds, synchronize
    )
    results |= comparisons(clock, CPU_BOUND if device.type == "cpu" else GPU_BOUND)
    if device.type == "cuda":
        replays = {name: captured(made[name]) for name in (PEER, "nvlamb", "lamb", "lars")}
        results |= comparisons(in_turns(replays, made, options.rounds, synchronize)[0], GPU_BOUND, "_captured")
    else:
        results["processor_time_over_adamw"] = {
            name: statistics.median(mine / peer for mine, peer in zip(times, processor[PEER], strict=True))
            for name, times in processor.items()
        }
    size = sum(parameter.nbytes for parameter in made[PEER].param_groups[0]["params"])
    results["bytes_per_s"] = {
        "adamw": PASSES["adamw"] * size / statistics.median(clock[PEER]),
        "nvlamb, if it took 11 passes": PASSES["lamb"] * size / statistics.median(clock["nvlamb"]),
    }
    states = {name: state_bytes(made[name]) for name in (PEER, "nvlamb")}
    peaks = {name: peak_bytes_of(name) for name in states}
    results |= {"state_bytes": states, "peak_bytes": {name: peak for name, (_, peak) in peaks.items()}}
    results["code_bytes"] = {name: code for name, (code, _) in peaks.items()}
    results["peak_ratio"] = peaks["nvlamb"][1] / peaks[PEER][1]
    for name, value in results.items():
        print(f"{name}: {value}")
    path = write_results("optimizers" if device.type == "cpu" else "optimizers_gpu", results)
    print(f"written to {path}")
    missed = [name for name, value in results.items() if isinstance(value, Paired) and not value.met]
    missed += ["peak_ratio"] if results["peak_ratio"] > MEMORY_BOUND else []
    raise SystemExit(f"missed: {', '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
