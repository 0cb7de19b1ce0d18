"""``hpcbench plan``: which meshes of ranks fit a machine, and what they demand of it, without training."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hpcbench.application import find_application
from hpcbench.cli.arguments import preset_of
from hpcbench.config.schema import MOST_SAMPLES
from staging.errors import InputError
from staging.number_options import MOST_NODES, MOST_PER_NODE, add_whole

if TYPE_CHECKING:
    from hpcbench.config.schema import RunConfig
    from hpcbench.planning.plan import MeshPlan, Plans

DESCRIPTION = """\
Count what every mesh of ranks (data x spatial) would demand of each GPU. Nothing is trained, no
data is read, and no GPU is needed: the model runs on tensors that have shapes but no data.
An application without a module `shapes` needs --data.root DIR, from which one sample is read.

  hpcbench plan cosmoflow --preset mlperf --nodes 4 --gpus-per-node 8
  hpcbench plan deepcam --preset mlperf --nodes 8 --gpus-per-node 4 --memory-per-gpu 80GB
  hpcbench plan cosmoflow --preset mlperf --nodes 2 --gpus-per-node 4 --global-batch-size 2 \\
      --data.sample_size 512 --simulate.universe_size 512 --model.conv_layers 7

One line per mesh; each value is that of the rank with the most of it:
  mesh       data-parallel size x ranks that share a sample (spatial parallelism, domain
             decomposition); (2x4) splits two dimensions
  batch      local batch x accumulation; the local batch is at most the preset's
  state      parameters, gradients with the buffers that they travel in, optimizer state
  saved      activations saved for the backward pass, in the run's precision (auto: bf16-mixed)
  peak       the most that a pass holds at a time: those, and results and gradients in flight
  input      inputs and targets of the local batch; of the inputs only the rank's part, if the
             application can read parts
  memory     the most in a step: parameters, optimizer, buffers, input, and the peak with the
             gradients that exist by then; on processors (--parallel.accelerator cpu) including
             the workspace of kernels and what the heap keeps, up to 11 % low in float32; on
             accelerators without these: what they take there is unmeasured
  halo, back sent in a step, forward and backward: halos, and parts gathered into whole samples
  reduce     gradients that enter the sum over all ranks in a step
  B/MFLOP    bytes sent, including sums of statistics, per million operations of the rank
  nodes      nodes that share a sample

The line "Checkpoint" is the host memory that rank 0 needs for the copy from which a checkpoint
is written while the training continues; of sharded states the other ranks copy their own.

Order: meshes that fit --memory-per-gpu, then those that keep the global batch (the preset's
local batch and accumulation on all ranks, unless given), then those that keep a sample within
a node, then those with the least B/MFLOP. To train with the mesh of a line, set
--parallel.spatial, --train.local_batch_size and .accumulation. A mesh that --parallel.spatial
asks for here is listed too, or refused with a reason.
"""
UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command; dotted settings come on top."""
    parser.add_argument("app", metavar="APP", help="application; `hpcbench apps` lists them")
    parser.add_argument("--preset", help="smoke, laptop, node, mlperf, ... (default: smoke)")
    parser.add_argument(
        "--config", action="append", default=[], type=Path, metavar="FILE", help="YAML file of settings; repeatable"
    )
    add_whole(parser, "--nodes", 1, MOST_NODES, "nodes of the machine (default: 1)", default=1)
    add_whole(parser, "--gpus-per-node", 1, MOST_PER_NODE, "GPUs, and so ranks, per node", required=True, metavar="G")
    add_whole(parser, "--global-batch-size", 1, MOST_SAMPLES, "samples per optimizer step", metavar="B")
    parser.add_argument("--memory-per-gpu", metavar="SIZE", help="such as 80GB or 40GiB, to show which meshes fit")


def run_with_overrides(args: argparse.Namespace, overrides: dict[str, str]) -> int:
    """Print the meshes, best first."""
    memory = None if args.memory_per_gpu is None else memory_bytes(args.memory_per_gpu)
    application = find_application(args.app)
    from hpcbench.config.resolve import resolve
    from hpcbench.results.units import counted

    config = resolve(application, preset_of(args), args.config, overrides)
    from hpcbench.planning.plan import Machine, plan_meshes

    machine = Machine(args.nodes, args.gpus_per_node, memory)
    plans = plan_meshes(application, config, machine, args.global_batch_size, say)
    geometry = f"{counted(args.nodes, 'node')} x {counted(args.gpus_per_node, 'GPU')}: {counted(machine.ranks, 'rank')}"
    print(page(f"{application.name} {config.preset} on {geometry}", config, plans, args.global_batch_size))
    return 0


def say(words: str) -> None:
    """Show the progress of the counting on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{words:60}\r", end="", file=sys.stderr, flush=True)


def memory_bytes(text: str) -> int:
    """Parse a size such as ``80GB`` into bytes. Raises ``InputError`` for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([MGT]i?B)", text)
    if match is None or float(match[1]) == 0:
        raise InputError(f"--memory-per-gpu ({text}) must be a size above 0 such as 80GB or 40GiB")
    return int(float(match[1]) * UNITS[match[2]])


def page(title: str, config: RunConfig, plans: Plans, asked: int | None) -> str:
    """Headline, state of a rank, table, and what is left out."""
    from hpcbench.planning.counting import counted_precision, on_processor
    from hpcbench.results.units import size

    first = plans.meshes[0]
    batches = {mesh.global_batch for mesh in plans.meshes if mesh.keeps_batch}
    batch = asked or next(iter(batches))
    sharded = f" as {first.shape.words}, sharded" if config.parallel.shard_states else ""
    lines = [
        f"{title}, global batch {batch}, activations in {counted_precision(config)}",
        f"State of a rank{sharded}: parameters {size(first.parameters)}, gradients {size(first.gradients)}, "
        f"{config.optim.name} {size(first.optimizer)}",
        *([f"Checkpoint: {size(first.checkpoint)} of host memory on rank 0"] if first.checkpoint else []),
        f"Memory in {unit(max(mesh.memory for mesh in plans.meshes))}, "
        f"bytes sent in a step in {unit(max(mesh.sent for mesh in plans.meshes))}",
        *(
            []
            if on_processor(config)
            else ["Memory without the workspace of kernels, which is unmeasured on accelerators"]
        ),
        "",
        mesh_table(plans.meshes),
    ]
    others = [f"{mesh.shape.words} has {mesh.global_batch}" for mesh in plans.meshes if not mesh.keeps_batch]
    if others:
        lines += ["", *wrapped(f"*  not the global batch of {batch}: {', '.join(others)}")]
    if plans.refused:
        shape, reason = next(iter(plans.refused.items()))
        lines += ["", *wrapped(f"Not formed: {len(plans.refused)}, the first of them {shape.words}: {reason}")]
    return "\n".join(lines)


def mesh_table(meshes: list[MeshPlan]) -> str:
    """One line per mesh; memory in one unit, traffic in another."""
    from hpcbench.results.tables import table

    held = UNITS[unit(max(mesh.memory for mesh in meshes))]
    sent = UNITS[unit(max(mesh.sent for mesh in meshes))]
    numbers: dict[str, Callable[[MeshPlan], float]] = {
        "state": lambda mesh: mesh.state / held,
        "saved": lambda mesh: mesh.activations / held,
        "peak": lambda mesh: mesh.peak / held,
        "input": lambda mesh: mesh.input / held,
        "memory": lambda mesh: mesh.memory / held,
        "halo": lambda mesh: mesh.halo_forward / sent,
        "back": lambda mesh: mesh.halo_backward / sent,
        "reduce": lambda mesh: mesh.reduced / sent,
        "B/MFLOP": lambda mesh: 1e6 * mesh.sent / mesh.flop,
    }
    fits = ["fits"] if meshes[0].fits is not None else []
    rows = [
        [
            mesh.shape.words + ("" if mesh.keeps_batch else " *"),
            f"{mesh.local_batch}x{mesh.accumulation}",
            *(shown(of(mesh)) for of in numbers.values()),
            str(mesh.nodes),
            *["yes" if mesh.fits else "no" for _ in fits],
        ]
        for mesh in meshes
    ]
    return table(["mesh", "batch", *numbers, "nodes", *fits], rows, right=(*numbers, "nodes"))


def unit(largest: float) -> str:
    """The largest unit in which ``largest`` is at least 1, else MiB."""
    return next((name for name in ("TiB", "GiB") if largest >= UNITS[name]), "MiB")


def shown(number: float) -> str:
    """Three digits, at most three of them after the decimal point."""
    from hpcbench.results.units import significant

    return significant(number) if number >= 0.1 or number == 0 else f"{number:.3f}"


def wrapped(text: str) -> list[str]:
    """Lines of at most 100 columns."""
    import textwrap

    return textwrap.wrap(text, 100, subsequent_indent="   ", break_on_hyphens=False)
