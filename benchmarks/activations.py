"""What each rank keeps of a sample that 1, 2 and 4 ranks share, for the backward pass and at its peak.

``python benchmarks/activations.py`` starts that many processes of one thread, one mesh after the other, and writes
``benchmarks/results/activations.json``. Kept are the tensors that autograd holds after a forward pass, except
parameters. The peak is that of the process's memory in a forward and a backward pass, less what it held before; the
first pass, in which libraries fill their buffers, is not counted. The results also hold what ``hpcbench plan`` counts.
Numbers are float32, except for CosmoFlow at 256^3: its first activation would have 2 GiB, and torch's convolutions on a
processor (oneDNN) have only a reference kernel for tensors of that size, which takes minutes per layer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import psutil
import torch
from _common import write_results
from _split import Sample, kept_bytes, start_ranks

from hpcbench.measure.memory import process_peak_bytes, reset_peak_memory
from hpcbench.parallel.group import connect
from hpcbench.parallel.mesh import make_mesh
from hpcbench.parallel.mesh_shape import mesh_shape
from hpcbench.planning.counting import count_pass
from staging.ranks.launch import detect

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "cosmoflow 128^3": ("cosmoflow", {"data.sample_size": 128}),
    "cosmoflow 256^3, bf16": (
        "cosmoflow",
        {
            "data.sample_size": 256,
            "simulate.universe_size": 512,
            "model.conv_layers": 6,
            "train.precision": "bf16-mixed",
        },
    ),
    "deepcam 384 x 576": ("deepcam", {"data.height": 384, "data.width": 576}),
    "deepcam 768 x 1152": ("deepcam", {}),
}
MESHES = ("1", "2", "4", "2x2")


def work(mesh_name: str, case: str, path: Path) -> None:
    """Do the work of one process; rank 0 writes what the rank that keeps the most keeps."""
    torch.set_num_threads(1)
    group = connect(detect(os.environ), "cpu")
    name, settings = CASES[case]
    sample = Sample(name, {"train.precision": "32-true", **settings})
    mesh = make_mesh(group, mesh_shape(group.world_size, mesh_name))
    model, loss = sample.model(mesh), sample.loss(mesh)
    loss(model).backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.zero_()
    before = psutil.Process().memory_info().rss
    reset_peak_memory(torch.device("cpu"))
    loss(model).backward()
    peak = process_peak_bytes() - before
    figures = {"kept": group.max(kept_bytes(model, loss)), "peak": group.max(peak)}
    if group.is_main:
        axis_ranks = [axis.rank for axis in mesh.axes.values()]
        counted = count_pass(sample.application, sample.config, mesh.shape, tuple(axis_ranks) or (0,), 1)
        figures |= {"kept_as_planned": counted.activations, "peak_as_planned": counted.peak}
        path.write_text(json.dumps(figures), encoding="utf-8")
    group.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--meshes", nargs="+", choices=list(MESHES), default=list(MESHES))
    parser.add_argument("--rank", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        work(options.rank[0], options.rank[1], Path(options.rank[2]))
        return
    # glibc then returns freed tensors at once, and the process's memory is what it holds.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    results: dict[str, Any] = {"batch": 1}
    for case in options.cases:
        results[case] = {}
        for mesh in options.meshes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "found.json"
                start_ranks(math.prod(map(int, mesh.split("x"))), "--rank", mesh, case, str(path))
                figures = json.loads(path.read_text(encoding="utf-8"))
            whole = results[case].get("1", figures)
            figures |= {f"{key}_of_whole": figures[key] / whole[key] for key in ("kept", "peak")}
            results[case][mesh] = figures
            print(
                f"{case} over {mesh}: " + ", ".join(f"{key} {value:.4g}" for key, value in figures.items()), flush=True
            )
    if options.cases == list(CASES) and options.meshes == list(MESHES):
        print(f"written to {write_results('activations', results)}")


if __name__ == "__main__":
    main()
