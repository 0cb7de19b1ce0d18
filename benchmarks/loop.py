"""The whole training loop against bare steps of the same model, paired, and the peak memory of both.

``python benchmarks/loop.py [--rounds 9] [--only cosmoflow|deepcam] [--steps N]`` writes
``benchmarks/results/loop.json``. It exits with 1 if a median, or the memory, is beyond its bound; the last line says
so.

The loop is ``hpcbench.train.loop.Trainer.train_part`` on the run that ``hpcbench train`` opens, on simulated data in
the published format: shuffling, reading (gzip TFRecords with checksums, HDF5), preparing and stacking the batch,
dropout keys, forward, loss, backward, gradient reducer, schedule, optimizer, phases, progress, and the losses of the
epoch in ``steps.csv``. Evaluation and checkpoints, which have no counterpart in bare steps, are excluded. A bare step
has its prepared tensors in memory: forward, loss, backward, optimizer, gradients dropped; same model, optimizer and
precision. A step with its input also reads and prepares its batch first, sample by sample, as any script would: on
cores that all compute, nobody can save that time, and what the loop takes beyond it is the loop's own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from _common import Paired, Worker, answers, paired, serve, write_results
from torch import Tensor

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.data.loader import BatchLoader
from hpcbench.data.simulate import simulate_dataset
from hpcbench.train.dropout import set_sample_keys
from hpcbench.train.evaluation_schedule import Part
from hpcbench.train.huge_pages import SWITCH, use_huge_pages
from hpcbench.train.loop import Trainer
from hpcbench.train.randomness import sample_keys
from hpcbench.train.ranks import connect_ranks
from hpcbench.train.setup import set_up
from staging.phase_timer import PhaseTimer
from staging.ranks.launch import detect
from staging.ranks.signals import Interrupts

STEPS = {"cosmoflow": 32, "deepcam": 4}
"""Steps per epoch by default. Presets have more, so a cost that an epoch has once, such as the wait for its first
batch, weighs more here than in a real run."""
SETTINGS: dict[str, dict[str, Any]] = {
    "cosmoflow": {"data.sample_size": 64, "simulate.universe_size": 64},
    "deepcam": {"data.height": 192, "data.width": 288, "optim.name": "adamw"},
}
BOUND, MEMORY_BOUND = 1.05, 1.10
"""Largest allowed ratios of the loop's median time, and of its peak memory, to those of what it is compared with."""
READY = 2
"""Batches that bare steps keep in memory and use in turn. With a whole epoch's the loop would seem to need less."""
Step = Callable[[], None]


def configuration(name: str, root: Path) -> RunConfig:
    """Return a run of application ``name`` at its default width, batch 2, with ``OMP_NUM_THREADS`` threads."""
    samples = 2 * STEPS[name]
    common = {
        "data.root": str(root), "simulate.train_samples": samples, "simulate.validation_samples": 2,
        "train.local_batch_size": 2, "train.max_epochs": 1000, "train.seed": 1, "parallel.accelerator": "cpu",
        "parallel.threads": torch.get_num_threads(),
    }  # fmt: skip
    return resolve(find_application(name), None, None, common | SETTINGS[name])


@contextmanager
def opened(name: str, root: Path, folder: Path) -> Iterator[Trainer]:
    """Open the run as ``hpcbench train`` has it when its clock starts."""
    config = configuration(name, root)
    with Interrupts() as interrupts, connect_ranks(detect(os.environ), config) as ranks:
        trainer = set_up(find_application(name), config, ranks, PhaseTimer(), interrupts, folder, resume=False)
        trainer.run.log.init_stop()
        trainer.run.log.run_start()
        trainer.run.task.load(config)
        yield trainer


def loop_epoch(trainer: Trainer) -> Step:
    """Return a function that runs one epoch of the training loop."""

    def epoch() -> None:
        state = trainer.state
        number = state.epoch + 1
        trainer.train_part(number, trainer.start_epoch(number), Part(number, None))
        state.epoch += 1
        state.micro_batch, state.epoch_losses = 0, []

    return epoch


def bare_epoch(trainer: Trainer) -> Step:
    """Return a function that makes as many bare steps as an epoch has, on prepared batches."""
    keys, step = keys_of_epoch(trainer), bare_step(trainer)
    read, prepare = BatchLoader(trainer.data.training, 0, pin=False).reader.read, trainer.run.task.prepare
    batches = trainer.data.batches_of_epoch(1)
    ready = [prepare(*read(indices), batch_keys) for indices, batch_keys in zip(batches[:READY], keys, strict=False)]

    def epoch() -> None:
        for (inputs, target), batch_keys in zip(cycle(ready), keys, strict=False):
            step(inputs, target, batch_keys)

    return epoch


def input_epoch(trainer: Trainer) -> Step:
    """Return a function that makes the same steps, but reads and prepares each batch first."""
    keys, step = keys_of_epoch(trainer), bare_step(trainer)
    read, prepare = BatchLoader(trainer.data.training, 0, pin=False).reader.read, trainer.run.task.prepare
    batches = trainer.data.batches_of_epoch(1)

    def epoch() -> None:
        for indices, batch_keys in zip(batches, keys, strict=True):
            step(*prepare(*read(indices), batch_keys), batch_keys)

    return epoch


def keys_of_epoch(trainer: Trainer) -> list[Tensor]:
    """The keys that dropout and augmentation draw from, batch by batch."""
    return [sample_keys(trainer.run.seed, 1, torch.from_numpy(indices)) for indices in trainer.data.batches_of_epoch(1)]


def bare_step(trainer: Trainer) -> Callable[[Tensor, Tensor, Tensor], None]:
    """Return a step of forward, loss, backward and optimizer: nothing that training could do without."""
    run, step = trainer.run, trainer.step
    model, optimizer, task = step.model.train(), step.optimizer.optimizer, run.task
    half = run.precision.name == "bf16-mixed"

    def train(inputs: Tensor, target: Tensor, keys: Tensor) -> None:
        set_sample_keys(model, keys)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            output = model(inputs)
        torch.autograd.backward(task.loss(output.float(), target))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return train


KINDS: dict[str, Callable[[Trainer], Step]] = {"loop": loop_epoch, "bare": bare_epoch, "input": input_epoch}


def measure(name: str, root: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """Time all ways in turn, in one process with one model and optimizer.

    Then measure the memory of two of them, each in a process of its own.
    """
    with opened(name, root, folder / "all") as trainer:
        trainer.step.model.train()
        epochs = {kind: make(trainer) for kind, make in KINDS.items()}
        loop, phases = ("hpcbench's loop", epochs["loop"]), trainer.run.phases.timer
        over_bare = paired(("bare steps", epochs["bare"]), loop, rounds=rounds)
        over_input = paired(("steps with their input", epochs["input"]), loop, rounds=rounds)
        spent, number = phases.totals(), 2 * (rounds + 1)
        precision = trainer.run.precision.name
    steps = ("--steps", str(STEPS[name]))
    workers = {kind: Worker(name, kind, str(root), str(folder / kind), *steps) for kind in ("loop", "bare")}
    for worker in workers.values():
        worker()
        worker()  # the optimizer has its states from the first step on
        worker.close()
    memory = {kind: worker.answers[-1]["peak_bytes"] for kind, worker in workers.items()}
    measured = {
        "precision": precision,
        "threads": torch.get_num_threads(),
        "steps_per_timing": STEPS[name],
        "bound": BOUND,
        "memory_bound": MEMORY_BOUND,
        "loop_over_bare": ratios(over_bare),
        "loop_over_steps_with_input": ratios(over_input),
        "least_loop_over_least_bare": min(over_bare.peer_s) / min(over_bare.ours_s),
        "least_loop_over_least_with_input": min(over_input.peer_s) / min(over_input.ours_s),
        "phases_mean_s": {phase: spent[phase] / number for phase in ("input_wait", "compute", "optimizer")},
        "times": [asdict(over_bare), asdict(over_input)],
        "peak_bytes": memory,
        "peak_memory_ratio": memory["loop"] / memory["bare"],
    }
    print(
        f"{name}: loop over bare steps {measured['loop_over_bare']}, over steps with their input "
        f"{measured['loop_over_steps_with_input']}, memory {measured['peak_memory_ratio']:.3f}", flush=True,
    )  # fmt: skip
    return measured


def beyond_bounds(results: dict[str, Any]) -> list[str]:
    """List the figures, by application, that are beyond their bounds."""
    figures = {
        f"{name} {words}": (value, bound)
        for name, measured in results.items()
        for words, value, bound in (
            ("over bare steps", measured["loop_over_bare"]["median"], BOUND),
            ("over steps with their input", measured["loop_over_steps_with_input"]["median"], BOUND),
            ("memory", measured["peak_memory_ratio"], MEMORY_BOUND),
        )
    }
    return [f"{words} {value:.3f} of {bound:.2f}" for words, (value, bound) in figures.items() if value > bound]


def ratios(timings: Paired) -> dict[str, float]:
    """Ratios round by round: median, smallest and largest."""
    values = [slow / fast for slow, fast in zip(timings.peer_s, timings.ours_s, strict=True)]
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def work(name: str, kind: str, root: str, folder: str) -> None:
    """Run epochs of one kind in this process, one for each line of standard input."""
    out = answers()
    with opened(name, Path(root), Path(folder)) as trainer:
        trainer.step.model.train()
        serve(KINDS[kind](trainer), out)


def main() -> None:
    """Measure and write ``results/loop.json``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=list(STEPS))
    parser.add_argument("--steps", type=int, help="steps per epoch, for both applications")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return
    if options.steps:
        STEPS.update(dict.fromkeys(STEPS, options.steps))
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
    if missed := beyond_bounds(results):
        sys.exit(f"missed: {', '.join(missed)}")
    print(f"met: at most {BOUND:.2f}, memory at most {MEMORY_BOUND:.2f}")


if __name__ == "__main__":
    main()
