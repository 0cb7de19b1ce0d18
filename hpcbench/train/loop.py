"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hpcbench.data.sampler import epoch_batches, in_turns
from hpcbench.optim.clip import clip_gradients
from hpcbench.optim.registry import set_learning_rate
from hpcbench.optim.schedule import learning_rate
from hpcbench.train.dropout import set_sample_keys
from hpcbench.train.evaluate import evaluate
from hpcbench.train.parts import Part, has_all_steps, parts_left, record_part
from hpcbench.train.randomness import sample_keys
from hpcbench.train.saving import save_checkpoint, stop_if_asked
from hpcbench.train.shards import reshuffle_shards
from hpcbench.train.simulated_nodes import draw_homes
from hpcbench.train.stage import finish_staging

if TYPE_CHECKING:
    from hpcbench.train.context import Run

FLUSH_EVERY = 50
"""Steps between two looks at the losses: each look waits for the device."""

Batches = Iterator[tuple[Tensor, Tensor, Tensor]]
"""Micro-batches on the device: inputs, targets and sample numbers."""


def train(run: Run) -> bool:
    """Train until the target is reached, or for ``max_epochs`` or ``max_steps``; returns whether it was reached."""
    while not is_over(run):
        draw_homes(run)
        reshuffle_shards(run)
        reached = train_and_evaluate(run, run.state.epoch + 1)
        with run.phase("checkpoint"):
            save_checkpoint(run, last=reached or is_over(run))
        if reached:
            return True
    if run.state.evaluated > run.state.epoch:
        run.log.epoch_stop(run.state.epoch + 1)
    return False


def is_over(run: Run) -> bool:
    """Whether the run has trained for as long as it may, and was evaluated then."""
    if run.config.train.max_steps is not None:
        return has_all_steps(run) and not run.state.epoch_losses
    return run.state.epoch >= run.config.train.max_epochs


def train_and_evaluate(run: Run, epoch: int) -> bool:
    """An epoch from where the state stands; returns whether an evaluation met the target, which ends the training."""
    started = time.perf_counter()
    if run.state.evaluated <= run.state.epoch:  # else the log of a resumed run has it
        run.log.epoch_start(epoch)
    batches = start_epoch(run, epoch)
    for part in parts_left(run):
        train_part(run, epoch, batches, part)
        if part.last or has_all_steps(run):
            finish_staging(run)
        if part.last:
            run.log.epoch_stop(epoch)
        trained = time.perf_counter()
        run.log.eval_start(part.end)
        # Loaders may draw random numbers, and the training that follows has its own.
        with run.phase("evaluation"), torch.random.fork_rng(devices=[], enabled=not part.last):
            metrics = evaluate(run)
        run.log.eval_stop(part.end)
        record_part(run, part, metrics, trained - started, time.perf_counter() - trained)
        started = time.perf_counter()
        if run.reached_target():
            if not part.last:
                run.log.epoch_stop(epoch)
            run.stop_clock("success")
            return True
    return False


def start_epoch(run: Run, epoch: int) -> Batches:
    """Seed an epoch; returns the micro-batches of it that this rank still has to do."""
    torch.manual_seed(run.seed * 1_000_003 + epoch * 1009 + run.mesh.data_rank)
    return training_batches(run, epoch)


def train_part(run: Run, epoch: int, batches: Batches, part: Part) -> None:
    """Go on with an epoch up to the end of ``part``."""
    turns = run.data_ranks.turns
    per_step = run.config.train.accumulation * turns
    left = (part.micro_batches or run.micro_batches) - run.state.micro_batch
    run.console.start_epoch(epoch, -(-left // per_step))
    sizes = step_sizes(run)
    run.step_times.begin()
    # The last part asks the loader until it has no more, so that it knows its end.
    for inputs, targets, indices in islice(batches, None if part.last else left):
        micro = run.state.micro_batch
        last = (micro + 1) % per_step == 0 or micro + 1 == run.micro_batches
        run.statistics.use(micro % turns)
        loss = forward_backward(run, inputs, targets, indices, epoch, sizes[micro // per_step], last)
        run.state.micro_batch += 1
        run.step_loss += loss
        if last:
            optimizer_step(run, sizes[micro // per_step])
            stop_if_asked(run)
    run.flush_losses()
    run.step_times.end()


def forward_backward(
    run: Run, inputs: Tensor, targets: Tensor, indices: Tensor, epoch: int, step_samples: int, last: bool
) -> Tensor:
    """Gradients of one micro-batch; returns its share of the mean loss over the samples of the step."""
    run.reducer.enabled = last and run.graph is None and run.config.parallel.overlap
    if len(indices) == 0 and not run.waits_in_pass:
        return run.no_loss()
    with run.phase("compute"):
        keys = sample_keys(run.seed, epoch, indices)
        set_sample_keys(run.model, keys)
        prepared, target = run.task.prepare(inputs, targets, keys)
        own = run.own_part(prepared, run.training_loader)
        return run.gradients_of(own, target, len(indices) / step_samples)


def optimizer_step(run: Run, step_samples: int) -> None:
    """Reduce what is left of the gradients, set the rate, and step."""
    config, state = run.config, run.state
    rate = learning_rate(config.schedule, config.optim.lr, state.step, run.steps_per_epoch, state.epoch)
    with run.phase("communication"):
        run.reducer.finish()
    if run.noise_scale is not None:
        run.noise_scale.end_step(state.step + 1, state.samples + step_samples, step_samples)
    with run.phase("optimizer"):
        clip_outside(run)
        set_learning_rate(run.optimizer, rate)
        if run.trust_ratios is not None:
            run.trust_ratios.before(state.step + 1)
        run.optimizer.step()
        if run.trust_ratios is not None:
            run.trust_ratios.after(state.step + 1)
        run.optimizer.zero_grad(set_to_none=run.graph is None)
    run.state.step += 1
    run.state.samples += step_samples
    run.losses.add(run.state.step, run.state.samples, rate, run.step_loss)
    run.step_loss = run.no_loss()
    run.console.step()
    if run.state.step % FLUSH_EVERY == 0:
        run.flush_losses()
    run.step_times.step(step_samples)


def clip_outside(run: Run) -> None:
    """Clip the gradients by their global norm where that is wanted and the optimizer does not do it itself."""
    if run.max_grad_norm:
        scaler = getattr(run.fabric._precision, "scaler", None)
        if scaler is not None:
            scaler.unscale_(run.optimizer.optimizer)
        clip_gradients(run.model.parameters(), run.max_grad_norm)


def step_sizes(run: Run) -> list[int]:
    """Samples of every optimizer step of an epoch, over all ranks."""
    micro, accumulation = run.micro_batch_sizes, run.config.train.accumulation
    return [sum(micro[start : start + accumulation]) for start in range(0, len(micro), accumulation)]


def training_batches(run: Run, epoch: int) -> Batches:
    """The micro-batches that this rank still has to do in the epoch, on the device, with their sample numbers.

    Simulated ranks, or groups of them that share batch-norm statistics, take turns in each.
    """
    ranks, batch = run.data_ranks, run.config.train.local_batch_size
    of_ranks = epoch_batches(
        len(run.training), run.seed, epoch, ranks.own, ranks.total, batch, run.config.data.last_batch, run.shards
    )
    batches = in_turns(of_ranks, ranks.together)[run.state.micro_batch :]
    loaded = run.training_loader.load(batches)
    for indices in batches:
        with run.phase("input_wait"):
            inputs, targets = next(loaded)
            on_device = run.to_device(inputs), run.to_device(targets)
        yield *on_device, torch.from_numpy(indices)
