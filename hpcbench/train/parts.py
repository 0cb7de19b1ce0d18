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
    """Epochs of the run when it is evaluated, to three digits (six where ``max_steps`` ends it); whole at its end."""
    micro_batches: int | None
    """Micro-batches of the epoch until then; unset for all."""

    @property
    def last(self) -> bool:
        """Whether the epoch ends with it."""
        return self.micro_batches is None


def parts_left(run: Run) -> list[Part]:
    """What the epoch under way has still to be trained or evaluated, in order; its last part has its end."""
    state, count, steps = run.state, run.config.train.evaluations_per_epoch, run.steps_per_epoch
    per_step = run.config.train.accumulation * run.data_ranks.turns
    within = (
        Part(round(state.epoch + number / count, 3), round(number * steps / count) * per_step)
        for number in range(1, count)
    )
    parts = [*(part for part in within if part.end > state.evaluated), Part(state.epoch + 1, None)]
    return up_to(parts, run, run.config.train.max_steps)


def up_to(parts: list[Part], run: Run, max_steps: int | None) -> list[Part]:
    """The parts until the run has made ``max_steps``, of which the last is then not the end of the epoch."""
    per_step = run.config.train.accumulation * run.data_ranks.turns
    begun = run.state.step - run.state.micro_batch // per_step
    if max_steps is None or begun + run.steps_per_epoch <= max_steps:
        return parts
    last = (max_steps - begun) * per_step
    before = [part for part in parts if part.micro_batches is not None and part.micro_batches < last]
    return [*before, Part(round(run.state.epoch + last / run.micro_batches, 6), last)]


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
