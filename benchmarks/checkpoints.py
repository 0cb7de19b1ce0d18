"""Checkpoints of CosmoFlow with AdamW: how long they hold the training, and their bandwidth against plain file access.

``python benchmarks/checkpoints.py`` writes ``benchmarks/results/checkpoints.json``. There are five comparisons, each
with its two sides in turn:

- write: gather, serialise, checksum, and wait for the disk, against a plain write of as many bytes and one fsync;
- read: verify and unpack, against a plain read of the file, both without the page cache;
- copy: the stall of an asynchronous checkpoint, against numpy's copy of as many bytes, from memory to memory;
- stall: the time that an asynchronous checkpoint holds the training, against a synchronous one;
- loop: steps while a checkpoint is written, against the same steps alone, by the clock, and by the processor time of
  the training's own thread, which shows what the writer costs it besides cores.

The disk limits the first two, memory the third. Data are on the file system of ``--folder``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from _common import Paired, compared, write_results

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import OptimConfig
from hpcbench.optim.registry import create_optimizer
from hpcbench.parallel.group import Group
from hpcbench.results.checkpoint_files import complete, marker
from hpcbench.train.checkpoint_io import Checkpoint, load
from hpcbench.train.checkpoint_writer import CheckpointWriter
from hpcbench.train.host_copy import tree_bytes
from staging.ranks.launch import Launch

PIECE = 2**20
STEPS = 40


def training() -> Checkpoint:
    """Return the state of CosmoFlow as published, after a step of AdamW."""
    application = find_application("cosmoflow")
    model = application.module("model").build_model(resolve(application, "mlperf"))
    optimizer = create_optimizer(OptimConfig(name="adamw"), [{"params": list(model.parameters())}], "cpu")
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return Checkpoint(model.state_dict(), optimizer.state_dict(), {}, {"epoch": 1, "step": 1}, {})


def plain_write(path: Path, data: memoryview) -> float:
    """Return the seconds to write ``data`` to a new file and have it on disk."""
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        while len(data):
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    return time.perf_counter() - start


def plain_read(path: Path) -> float:
    """Return the seconds to read a file in pieces."""
    buffer = bytearray(PIECE)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def clock_of(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turns(rounds: int, ours: Callable[[], float], peer: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Return what both report in ``rounds`` rounds of changing order, after one call of each to warm up."""
    seconds_by_side: tuple[list[float], list[float]] = ([], [])
    for number in range(-1, rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            value = (ours, peer)[side]()
            if number >= 0:
                seconds_by_side[side].append(value)
    return seconds_by_side


class Steps:
    """A training that only computes, on one thread; it keeps the processor time of its last steps."""

    def __init__(self) -> None:
        self._weights = torch.randn(512, 512)
        self.processor_s = 0.0

    def __call__(self) -> float:
        """Take some steps, and return their seconds."""
        state = torch.randn(512, 512)
        start, busy = time.perf_counter(), time.thread_time()
        for _ in range(STEPS):
            for _ in range(4):
                state = torch.tanh(state @ self._weights)
        self.processor_s = time.thread_time() - busy
        return time.perf_counter() - start


def measure(folder: Path, rounds: int) -> dict[str, Paired | int]:
    """Make all comparisons."""
    content = training()
    size = tree_bytes(vars(content))
    writer = CheckpointWriter(folder / "checkpoints", 1, Group(Launch(), torch.device("cpu"), None))
    data = np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8)
    copy = np.empty_like(data)

    def write(wait: bool = True) -> float:
        writer.save(content, wait=wait)
        held = writer.times.saves[-1].stall_s
        writer.wait()
        return writer.times.saves[-1].write_s if wait else held

    def read(call: Callable[[Path], object]) -> float:
        path = complete(writer.folder)[-1]
        forget(path)
        return clock_of(lambda: call(path))

    def synchronous() -> float:
        writer.save(content, wait=True)
        return writer.times.saves[-1].stall_s

    results: dict[str, Paired | int] = {"bytes": size}
    seconds_by_side = in_turns(rounds, write, lambda: plain_write(folder / "plain", memoryview(data)))
    results["write"] = compared("checkpoint", "write and fsync", *seconds_by_side)
    (folder / "plain").unlink()
    assert marker(complete(writer.folder)[-1]).exists()
    results["read"] = compared("checkpoint", "read", *in_turns(rounds, lambda: read(load), lambda: read(plain_read)))
    seconds_by_side = in_turns(rounds, lambda: write(wait=False), lambda: clock_of(lambda: np.copyto(copy, data)))
    results["copy"] = compared("asynchronous", "copy in memory", *seconds_by_side)
    seconds_by_side = in_turns(rounds, lambda: write(wait=False), synchronous)
    results["stall"] = compared("asynchronous", "synchronous", *seconds_by_side)
    return results | loops(writer, content, rounds)


def loops(writer: CheckpointWriter, content: Checkpoint, rounds: int) -> dict[str, Paired | int]:
    """Compare steps beside the writer with steps alone."""
    steps = Steps()
    busy: dict[str, list[float]] = {"beside": [], "alone": []}

    def beside() -> float:
        writer.save(content)
        seconds = steps()
        busy["beside"].append(steps.processor_s)
        writer.wait()
        return seconds

    def alone() -> float:
        seconds = steps()
        busy["alone"].append(steps.processor_s)
        return seconds

    seconds_by_side = in_turns(rounds, beside, alone)
    names = ("steps beside a writer", "steps alone")
    return {
        "loop": compared(*names, *seconds_by_side),
        "loop_processor": compared(*names, busy["beside"][1:], busy["alone"][1:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="on the file system to measure (default: that of temporary files)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        results = measure(Path(folder), options.rounds)
    size = results["bytes"]
    assert isinstance(size, int)
    for name, value in results.items():
        print(f"{name}: {value}")
        if isinstance(value, Paired) and name in ("write", "read", "copy"):
            rates = [size / seconds / 1e6 for seconds in (value.ours_median_s, value.peer_median_s)]
            print(f"  {rates[0]:.0f} MB/s of {rates[1]:.0f} MB/s")
    print(f"written to {write_results('checkpoints', results)}")


if __name__ == "__main__":
    main()
