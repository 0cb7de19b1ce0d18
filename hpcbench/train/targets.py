"""Whether a run has met its target, or trained for as long as it may, from its configuration and state alone."""

from __future__ import annotations

from hpcbench.config.schema import RunConfig
from hpcbench.train.state import State
from hpcbench.train.task import Task


def is_better(task: Task, value: float, other: float) -> bool:
    """Whether a value of the task's metric is better than another."""
    return value < other if task.better == "lower" else value > other


def meets_target(config: RunConfig, task: Task, value: float) -> bool:
    """Whether there is a target that a value of the metric meets."""
    target = config.train.target
    return target is not None and (value == target or is_better(task, value, target))


def epochs_to_target(config: RunConfig, task: Task, state: State) -> float | None:
    """Epochs at the first evaluation that met the target; ``None`` if none did."""
    return next((row["epoch"] for row in state.history if meets_target(config, task, row[task.metric])), None)


def is_over(config: RunConfig, state: State) -> bool:
    """Whether the run has trained for as long as it may, and has then been evaluated."""
    if config.train.max_steps is not None:
        return state.step >= config.train.max_steps and not state.epoch_losses
    return state.epoch >= config.train.max_epochs
