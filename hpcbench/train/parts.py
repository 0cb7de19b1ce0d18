"""The parts of an epoch, each with an evaluation at its end, and the record of what an evaluation found."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcbench.train.context import Run


@dataclass(frozen=True)
class Part:
    """Optimizer steps of an epoch up to an evaluation."""

    end: float
    """Epochs of the run when it is evaluated, to three digits (six where ``max_steps`` is set); whole at its end."""
    micro_batches: int | None
    """Micro-batches of the epoch until then; unset for all."""

    @property
    def last(self) -> bool:
        """Whether the epoch ends with it."""
        return self.micro_batches is None


def parts_left(run: Run) -> list[Part]:
    """What the epoch under way has still to be trained or evaluated, in order; its last part has its end."""
    state, count, steps = run.state, run.config.train.evaluations_per_epoch, run.steps_per_epoch
    digits = 3 if run.config.train.max_steps is None else 6
    within = [
        Part(round(state.epoch + number / count, digits), round(number * steps / count) * per_step(run))
        for number in range(1, count)
    ]
    # Steps since the last evaluation may be just those that a part ends with.
    done = state.micro_batch - (1 if state.epoch_losses else 0)
    parts = [*(part for part in within if (part.micro_batches or 0) > done), Part(state.epoch + 1, None)]
    return up_to(parts, run, run.config.train.max_steps)


def up_to(parts: list[Part], run: Run, max_steps: int | None) -> list[Part]:
    """The parts until the run has made ``max_steps``, of which the last need then not be the end of the epoch."""
    state = run.state
    begun = state.step - -(-state.micro_batch // per_step(run))  # the last step of an epoch may be shorter
    if max_steps is None or begun + run.steps_per_epoch <= max(max_steps, state.step):
        return parts
    steps = max(max_steps, state.step) - begun
    before = [part for part in parts if not part.last and (part.micro_batches or 0) <= steps * per_step(run)]
    if before and before[-1].micro_batches == steps * per_step(run):
        return before
    return [*before, Part(round(state.epoch + steps / run.steps_per_epoch, 6), steps * per_step(run))]


def per_step(run: Run) -> int:
    """Micro-batches of an optimizer step, those of simulated ranks counted each."""
    return run.config.train.accumulation * run.data_ranks.turns


def has_all_steps(run: Run) -> bool:
    """Whether the run has made the steps that it was asked for, where that was a number of steps."""
    return run.config.train.max_steps is not None and run.state.step >= run.config.train.max_steps


def record_part(run: Run, part: Part, metrics: dict[str, float], train_s: float, eval_s: float) -> None:
    """Keep what was trained since the last evaluation, and what this one found: state, table, log and console."""
    state, losses = run.state, run.state.epoch_losses
    if part.last:
        state.epoch, state.micro_batch = int(part.end), 0
    before = state.history[-1]["samples"] if state.history else 0
    row: dict[str, float] = {
        "epoch": part.end, "step": state.step, "samples": state.samples, "lr": losses[-1][3],
        "train_loss": statistics.fmean(row[4] for row in losses), **metrics, "train_s": train_s, "eval_s": eval_s,
        "elapsed_s": run.log.elapsed_s(), "samples_per_s": (state.samples - before) / train_s,
    }  # fmt: skip
    state.history.append(row)
    run.evaluations += 1
    state.epoch_losses = []
    run.metrics = metrics
    value = metrics[run.task.metric]
    if state.best is None or run.is_better(value, state.best):
        state.best = value
    run.log.quality(run.task.metric_key, value, part.end)
    run.log.event("train_loss", row["train_loss"], epoch_num=part.end)
    run.log.event("throughput", row["samples_per_s"], epoch_num=part.end)
    if run.is_first:
        run.folder.append_rows("epochs.csv", [row])
        run.console.epoch(row, run.task.metric)
