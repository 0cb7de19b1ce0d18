"""The whole training loop against bare steps of the same model, paired, and the peak memory of both.

``python benchmarks/loop.py [--rounds 9] [--only cosmoflow|deepcam]`` writes ``benchmarks/results/loop.json``.

The loop is ``hpcbench.train.loop.train_part`` on the run that ``hpcbench train`` opens, on simulated data in the
published format: shuffling, reading (gzip TFRecords with checksums, HDF5), preparing and stacking the batch, dropout
keys, forward, loss, backward, gradient reducer, schedule, optimizer, spans, progress, and the losses of the epoch in
``steps.csv``. Evaluation and checkpoints, which bare steps have no counterpart of, are outside. A bare step has its
prepared tensors in memory: forward, loss, backward, optimizer, gradients dropped; same model, optimizer and precision.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from _common import Worker, answers, paired, serve, write_results

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.data.simulate import simulate_dataset
from hpcbench.train.context import Run
from hpcbench.train.dropout import set_sample_keys
from hpcbench.train.huge_pages import SWITCH, use_huge_pages
from hpcbench.train.interrupt import Interrupts
from hpcbench.train.loop import start_epoch, train_part, training_batches
from hpcbench.train.open import open_run
from hpcbench.train.parts import Part
from hpcbench.train.randomness import sample_keys
from hpcbench.train.ranks import connect_ranks
from staging.ranks.launch import detect
from staging.spans import Spans

STEPS = {"cosmoflow": 3, "deepcam": 1}
"""Steps of an epoch: few, so that what an epoch costs once weighs more here than in any real run."""
SETTINGS: dict[str, dict[str, Any]] = {
    "cosmoflow": {"data.sample_size": 64, "simulate.universe_size": 64},
    "deepcam": {"data.height": 192, "data.width": 288, "optim.name": "adamw"},
}
BOUND = 1.05
Step = Callable[[], None]


def configuration(name: str, root: Path) -> RunConfig:
    """The run of application ``name`` at its default width, batch 2, one thread per ``OMP_NUM_THREADS``."""
    samples = 2 * STEPS[name]
    common = {
        "data.root": str(root), "simulate.train_samples": samples, "simulate.validation_samples": 2,
        "train.local_batch_size": 2, "train.max_epochs": 1000, "train.seed": 1, "parallel.accelerator": "cpu",
        "parallel.threads": torch.get_num_threads(),
    }  # fmt: skip
    return resolve(find_application(name), None, None, common | SETTINGS[name])


@contextmanager
def opened(name: str, root: Path, folder: Path) -> Iterator[Run]:
    """The run as ``hpcbench train`` has it when its clock starts."""
    config = configuration(name, root)
    with Interrupts() as interrupts, connect_ranks(detect(os.environ), config) as ranks:
        run = open_run(find_application(name), config, ranks, Spans(), interrupts, folder, resume=False)
        run.log.init_stop()
        run.log.run_start()
        run.task.load()
        yield run


def loop_epoch(run: Run) -> Step:
    """One epoch of the training loop."""

    def epoch() -> None:
        number = run.state.epoch + 1
        train_part(run, number, start_epoch(run, number), Part(number, None))
        run.state.epoch += 1
        run.state.micro_batch, run.state.epoch_losses = 0, []

    return epoch


def bare_epoch(run: Run) -> Step:
    """As many bare steps as an epoch has, on batches that are ready."""
    stored = [
        (inputs, targets, sample_keys(run.seed, 1, indices)) for inputs, targets, indices in training_batches(run, 1)
    ]
    ready = [(*run.task.prepare(inputs, targets, keys), keys) for inputs, targets, keys in stored]
    model, optimizer, task = run.model.train(), run.optimizer.optimizer, run.task
    half = run.precision == "bf16-mixed"

    def epoch() -> None:
        for inputs, target, keys in ready:
            set_sample_keys(model, keys)
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                output = model(inputs)
            torch.autograd.backward(task.loss(output.float(), target))
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return epoch


KINDS: dict[str, Callable[[Run], Step]] = {"loop": loop_epoch, "bare": bare_epoch}


def measure(name: str, root: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """Both ways in turns in one process, on one model and optimizer; then the memory of each in its own process."""
    with opened(name, root, folder / "both") as run:
        run.model.train()
        before: dict[str, float] = {}
        shares: list[dict[str, float]] = []
        busy: dict[str, list[float]] = {kind: [] for kind in KINDS}
        epochs = {kind: make(run) for kind, make in KINDS.items()}

        def timed(kind: str) -> None:
            start = time.process_time()
            epochs[kind]()
            busy[kind].append(time.process_time() - start)

        def loop() -> None:
            before.update(run.phases.spans.totals())
            timed("loop")
            after = run.phases.spans.totals()
            shares.append({phase: after[phase] - before.get(phase, 0.0) for phase in after})

        result = paired(("bare steps", lambda: timed("bare")), ("hpcbench's loop", loop), rounds=rounds)
        precision = run.precision
    phases = {key: statistics.median(part.get(key, 0.0) for part in shares[1:]) for key in shares[-1]}
    waits = [part["input_wait"] for part in shares[1:]]
    compute = [slow - wait for slow, wait in zip(result.peer_s, waits, strict=True)]
    workers = {kind: Worker(name, kind, str(root), str(folder / kind)) for kind in KINDS}
    for worker in workers.values():
        worker()
        worker()  # the optimizer has its states from the first step on
        worker.close()
    memory = {kind: worker.answers[-1]["peak_bytes"] for kind, worker in workers.items()}
    ratios = spread([slow / fast for slow, fast in zip(result.peer_s, result.ours_s, strict=True)])
    found = {
        "precision": precision,
        "threads": torch.get_num_threads(),
        "steps_per_timing": STEPS[name],
        "bound": BOUND,
        "loop_over_bare": ratios,
        "met": ratios["median"] <= BOUND,
        "loop_over_bare_processor_time": spread(
            [slow / fast for slow, fast in zip(busy["loop"][1:], busy["bare"][1:], strict=True)]
        ),
        "loop_without_input_over_bare": spread([c / fast for c, fast in zip(compute, result.ours_s, strict=True)]),
        "input_share": spread([wait / slow for wait, slow in zip(waits, result.peer_s, strict=True)]),
        "phases_median_s": phases,
        "times": asdict(result),
        "peak_bytes": memory,
        "peak_memory_ratio": memory["loop"] / memory["bare"],
    }
    print(f"{name}: loop over bare steps {ratios}, memory {found['peak_memory_ratio']:.3f}", flush=True)
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Median, least and largest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def work(name: str, kind: str, root: str, folder: str) -> None:
    """Epochs of one kind in this process, one for each line of the standard input."""
    out = answers()
    with opened(name, Path(root), Path(folder)) as run:
        run.model.train()
        serve(KINDS[kind](run), out)


def main() -> None:
    """Measure and write ``results/loop.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=list(STEPS))
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return
    if SWITCH not in os.environ:  # before torch is imported, as at the start of `hpcbench`
        use_huge_pages(os.environ)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in [options.only] if options.only else list(STEPS):
            root = Path(temporary) / name
            with redirect_stdout(sys.stderr):
                simulate_dataset(find_application(name), configuration(name, root), root, 1, quiet=True)
            results[name] = measure(name, root, Path(temporary) / f"{name}-runs", options.rounds)
            path = write_results("loop", results)
    print(path)


if __name__ == "__main__":
    main()
