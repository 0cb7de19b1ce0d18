"""The training loop: epochs, the steps up to an evaluation, the evaluation, and checkpoints between them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import NoReturn

import torch
from torch import Tensor

from hpcbench.data.sampler import Indices
from hpcbench.exits import Cause
from hpcbench.optim.schedule import learning_rate
from hpcbench.parallel.stop_vote import StopVote
from hpcbench.results.summary import Status
from hpcbench.train.attempt_recorder import AttemptRecorder
from hpcbench.train.checkpointing import Checkpoints
from hpcbench.train.context import RunContext
from hpcbench.train.data_path import Batch, DataPath
from hpcbench.train.dataset_staging import finish_staging
from hpcbench.train.evaluate import evaluate
from hpcbench.train.evaluation_schedule import EvaluationSchedule, Part
from hpcbench.train.loss_buffer import LossNotFiniteError
from hpcbench.train.not_finite import end_for_bad_sample
from hpcbench.train.observers import StepInfo
from hpcbench.train.randomness import seed_micro_batch
from hpcbench.train.rank_metrics import RankMetrics
from hpcbench.train.shard_staging import reshuffle_shards
from hpcbench.train.simulated_nodes import draw_homes
from hpcbench.train.state import State
from hpcbench.train.targets import epochs_to_target, is_better, is_over, meets_target
from hpcbench.train.training_step import TrainingStep
from staging.ranks.signals import Interrupted

FLUSH_EVERY = 50
"""Steps between two reads of what observers hold on the device: each read waits for the device."""

TURN_S = 0.5
"""How often ranks that wait for a staging tell each other whether one of them got a signal, in seconds."""

NOT_METRICS = ("epoch", "step", "samples", "lr", "train_loss", "train_s", "eval_s", "elapsed_s", "samples_per_s")
"""Columns of ``epochs.csv`` that are not metrics."""


class Trainer:
    """Trains the model of a run on its data until it meets the target, or for as long as it may."""

    def __init__(
        self,
        run: RunContext,
        data: DataPath,
        step: TrainingStep,
        rank_metrics: RankMetrics,
        checkpoints: Checkpoints,
        recorder: AttemptRecorder,
        state: State,
    ) -> None:
        self.run, self.data, self.step = run, data, step
        self.rank_metrics, self.checkpoints, self.recorder = rank_metrics, checkpoints, recorder
        self.state = state
        self.vote = StopVote(run.group, run.config.parallel.timeout_s, run.phases.host_wait)
        self.part_started: float | None = None
        """When this process began to train the current part of an epoch, if it is training."""
        self.write_until = math.inf
        """Until when, on the clock of ``time.monotonic``, files may be written after a signal to any rank."""
        self.since_flush: list[Tensor] = []
        """Indices of the samples of this rank whose losses have not been read yet."""
        self.scores: Tensor = torch.empty(0, 0)
        """Scores of every validation sample in the last evaluation, in sample order."""

    @property
    def schedule(self) -> EvaluationSchedule:
        """When evaluations are due; the steps of an epoch are those of the run's current shards."""
        train = self.run.config.train
        return EvaluationSchedule(
            train.evaluations_per_epoch, train.max_steps, self.data.steps_per_epoch, self.run.passes_per_step
        )

    def train(self) -> bool:
        """Train until the target is reached, or for ``max_epochs`` or ``max_steps``; returns whether it was reached."""
        if self.has_reached_before():
            return True
        while not self.is_over():
            self.deal_samples()
            reached = self.train_epoch(self.state.epoch + 1)
            if self.checkpoints.is_due(self.state, last=reached or self.is_over()):
                self.save_checkpoint()
            if reached:
                return True
        if self.state.evaluated > self.state.epoch:
            self.run.log.epoch_stop(self.state.epoch + 1)
        return False

    def deal_samples(self) -> None:
        """Before an epoch, assign samples to other nodes if that is wanted; checks for a signal before and after."""
        draw_homes(self.run, self.data, self.state.epoch)
        if self.state.epoch and self.run.config.staging.reshuffle:
            self.stop_now_if_asked()
            reshuffle_shards(self.run, self.data, self.state.epoch)
            self.stop_now_if_asked()

    def save_checkpoint(self, *, wait: bool = False) -> None:
        """Write a checkpoint, and record what the run has taken so far."""
        with self.run.phases.phase("checkpoint"):
            self.checkpoints.save(self.state, wait=wait)
            self.recorder.collect()
            self.recorder.record(self.state.step)

    def is_over(self) -> bool:
        """Whether the run has trained for as long as it may, and has then been evaluated."""
        return is_over(self.run.config, self.state)

    def train_epoch(self, epoch: int) -> bool:
        """Train an epoch from the current state; returns whether an evaluation met the target, which ends it."""
        run, state = self.run, self.state
        if state.evaluated <= state.epoch:  # otherwise it is in the log of a resumed run
            run.log.epoch_start(epoch)
        batches = self.start_epoch(epoch)
        for part in self.schedule.parts_left(state):
            self.part_started = time.perf_counter()
            self.train_part(epoch, batches, part)
            if part.last or self.schedule.has_all_steps(state):
                self.finish_staging()
            if part.last:
                run.log.epoch_stop(epoch)
            self.stop_part_clock()
            started = time.perf_counter()
            metrics = self.evaluate(part)
            self.record(part, metrics, time.perf_counter() - started)
            if meets_target(run.config, run.task, metrics[run.task.metric]):
                if not part.last:
                    run.log.epoch_stop(epoch)
                self.stop_clock("success", "target")
                return True
        return False

    def stop_part_clock(self) -> None:
        """Add the time since the part of an epoch began; its training is over, or stops here."""
        if self.part_started is not None:
            self.state.part_s += time.perf_counter() - self.part_started
        self.part_started = None

    def start_epoch(self, epoch: int) -> Iterator[Batch]:
        """The micro-batches of an epoch that this rank still has to do."""
        arriving = None if self.data.background is None else self.wait_for_samples
        return self.data.training_batches(epoch, self.state.micro_batch, arriving)

    def wait_for_samples(self, step: list[Indices]) -> None:
        """Wait until the samples of a step have been staged, on all ranks."""
        assert self.data.background is not None
        self.wait_together(partial(self.data.background.have_landed, list(self.data.files_of_step(step))))

    def finish_staging(self) -> None:
        """If the dataset was staged during training, wait for the rest, and read from there afterwards."""
        if self.data.background is not None:
            self.wait_together(self.data.background.has_ended)
            finish_staging(self.run, self.data)

    def wait_together(self, wait: Callable[[float, Callable[[], bool]], bool]) -> None:
        """Wait for a staging in short intervals, until ``wait`` is true on all ranks; a signal ends the run meanwhile.

        Collective. ``wait(most_s, stop)`` returns after at most ``most_s`` seconds, or when ``stop()`` is true.
        """
        interrupts, waits, number = self.run.interrupts, True, None
        with self.run.phases.timer.span("staging"):
            while waits and number is None:
                here = not wait(TURN_S, lambda: interrupts.received is not None)
                number, waits = self.vote.agree(interrupts.received, waits=here)
        if number is not None:
            self.stop_for(number)

    def train_part(self, epoch: int, batches: Iterator[Batch], part: Part) -> None:
        """Train from the current position in the epoch to the end of ``part``."""
        run, state, sizes = self.run, self.state, self.data.step_sizes
        per_step, passes = run.passes_per_step, run.data_ranks.passes
        left = (part.micro_batches or self.data.micro_batches) - state.micro_batch
        run.console.start_epoch(epoch, -(-left // per_step))
        self.step.observers.begin()
        # The last part reads until the loader is exhausted, so that the loader knows its end.
        for batch in islice(batches, None if part.last else left):
            number = state.micro_batch
            step_samples = sizes[number // per_step]
            last = (number + 1) % per_step == 0 or number + 1 == self.data.micro_batches
            seed_micro_batch(run.seed, epoch, number, run.mesh.data_rank, run.device)
            self.step.accumulate(
                batch, self.data.training_loader, epoch, state.step + 1, len(batch.indices) / step_samples,
                last=last, number=number % passes,
            )  # fmt: skip
            state.micro_batch += 1
            self.since_flush.append(batch.indices)
            if last:
                self.finish_step(step_samples)
                self.vote_on_step()
        self.flush()
        self.step.observers.end()

    def finish_step(self, step_samples: int) -> None:
        """Update the parameters, and count the step."""
        state, config = self.state, self.run.config
        rate = learning_rate(config.schedule, config.optim.lr, state.step, self.data.steps_per_epoch, state.epoch)
        info = StepInfo(state.step + 1, state.samples + step_samples, step_samples, rate)
        self.step.update(info)
        state.step, state.samples = info.number, info.samples
        self.run.progress.tick(state.step)
        self.run.console.step()
        if state.step % FLUSH_EVERY == 0:
            self.flush()
        self.step.observers.after_step(info)

    def flush(self) -> None:
        """Fetch what the observers have kept since the last flush, write it, and show the loss."""
        self.run.phases.settle()
        rows_by_table = self.step.observers.flush(self.state.epoch + 1)
        self.run.communication.settle()
        for table, rows in rows_by_table.items():
            if self.run.is_first:
                self.run.folder.append_rows(table, rows)
            if table == "steps.csv":
                self.state.epoch_losses += [list(row.values()) for row in rows]
                self.run.console.loss(rows[-1]["loss"])
        try:
            self.step.observers.check()
        except LossNotFiniteError as error:
            self.step.observers.end()
            self.explain_loss(error)
        self.since_flush.clear()

    def explain_loss(self, error: LossNotFiniteError) -> NoReturn:
        """End the run for a loss that is not finite: for the sample that explains it, if any rank has one."""
        indices = (int(index) for batch in self.since_flush for index in batch)
        end_for_bad_sample(self.run.group, self.run.task, self.data.training, indices, str(error))

    def vote_on_step(self) -> None:
        """Between steps, end the run if a rank got a signal, or flush if a rank can keep few more messages."""
        self.stop_if_asked()
        if self.vote.any_full:
            self.flush()

    def stop_if_asked(self) -> None:
        """End the run if a rank got a signal, on all ranks at the same call; collective."""
        self.run.progress.touch()
        number = self.vote.poll(self.run.interrupts.received, full=self.run.communication.is_filling())
        if number is not None:
            self.stop_for(number)

    def stop_now_if_asked(self) -> None:
        """As ``stop_if_asked``, but all ranks wait here for the last one, and learn of a signal at once."""
        number, _ = self.vote.agree(self.run.interrupts.received, waits=False)
        if number is not None:
            self.stop_for(number)

    def stop_for(self, number: int) -> NoReturn:
        """Save the state of the run, if there is time, and end the run on all ranks together."""
        self.flush()
        self.step.observers.end()
        self.stop_part_clock()
        # What is written before the checkpoint also takes time.
        seconds_left = self.vote.agree_min(self.run.interrupts.seconds_left())
        self.write_until = time.monotonic() + seconds_left
        self.checkpoints.writer.check = partial(end_after, self.write_until, number)
        expected = self.checkpoints.expected_s(self.state)
        if self.vote.agree_min(seconds_left - expected) > 0:
            self.save_checkpoint(wait=True)
        else:
            self.run.console.say(
                f"no checkpoint of step {self.state.step}: it would take about {expected:.0f} s, "
                f"and {max(seconds_left, 0):.0f} s are left"
            )
        raise Interrupted(number, everywhere=True)

    def seconds_left(self) -> float:
        """Seconds in which files may still be written; ``inf`` without a signal to this rank, or one that all know."""
        return min(self.write_until - time.monotonic(), self.run.interrupts.seconds_left())

    def evaluate(self, part: Part) -> dict[str, float]:
        """Metrics of the validation set at the end of ``part``."""
        self.run.log.eval_start(part.end)
        # Loaders may draw random numbers, which must not change those of the training that follows.
        with self.run.phases.phase("evaluation"), torch.random.fork_rng(devices=[], enabled=not part.last):
            self.scores, metrics = evaluate(self.run, self.data, self.step, self.stop_if_asked)
        self.run.log.eval_stop(part.end)
        return metrics

    def record(self, part: Part, metrics: dict[str, float], eval_s: float) -> None:
        """Record the training since the last evaluation and the result of this one: state, table, log and console."""
        run, state, losses = self.run, self.state, self.state.epoch_losses
        train_s = state.part_s
        if part.last:
            state.epoch, state.micro_batch = int(part.end), 0
        before = state.history[-1]["samples"] if state.history else 0
        row: dict[str, float] = {
            "epoch": part.end, "step": state.step, "samples": state.samples, "lr": losses[-1][3],
            "train_loss": statistics.fmean(row[4] for row in losses), **metrics, "train_s": train_s, "eval_s": eval_s,
            "elapsed_s": run.log.elapsed_s(), "samples_per_s": (state.samples - before) / train_s,
        }  # fmt: skip
        state.history.append(row)
        self.recorder.evaluated()
        state.epoch_losses, state.part_s = [], 0.0
        value = metrics[run.task.metric]
        if state.best is None or is_better(run.task, value, state.best):
            state.best = value
        run.log.quality(run.task.metric_key, value, part.end)
        run.log.event("train_loss", row["train_loss"], epoch_num=part.end)
        run.log.event("throughput", row["samples_per_s"], epoch_num=part.end)
        self.step.observers.evaluated(row)
        if run.is_first:
            run.folder.append_rows("epochs.csv", [row])
            run.console.epoch(row, run.task.metric)

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics of the last evaluation."""
        last = self.state.history[-1] if self.state.history else {}
        return {key: value for key, value in last.items() if key not in NOT_METRICS}

    def has_reached_before(self) -> bool:
        """Whether a resumed run had met its target before; if that was within an epoch, this ends it."""
        reached = epochs_to_target(self.run.config, self.run.task, self.state) is not None
        if reached and self.state.evaluated > self.state.epoch:
            self.run.log.epoch_stop(self.state.epoch + 1)
        return reached

    def stop_clock(self, status: Status, cause: Cause, reason: str = "") -> None:
        """End the scored time."""
        self.run.log.run_stop(status, reason, cause)
        if problem := self.rank_metrics.stop():
            self.run.console.say(f"the power log has no end: {problem}")


def end_after(moment: float, number: int) -> None:
    """Raise ``Interrupted`` for the signal ``number`` once ``time.monotonic`` has reached ``moment``."""
    if time.monotonic() >= moment:
        raise Interrupted(number)
