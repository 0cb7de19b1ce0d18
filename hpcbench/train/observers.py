"""Observers of the steps of a run: every measurement is one, in a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepInfo:
    """An optimizer step, as observers see it."""

    number: int
    """The step's number, counted from 1 over the run."""
    samples: int
    """Training samples up to the end of the step, over all ranks."""
    step_samples: int
    """Samples of the step itself, over all ranks."""
    lr: float


class StepObserver:
    """Watches steps. A measurement overrides what it needs; what it does not override costs nothing.

    ``flush``, ``check``, ``state_dict`` and ``summary`` are called on all ranks at the same points of the run.
    """

    name = ""
    """Key of the observer's state in a checkpoint; empty if it keeps none."""
    table = ""
    """The table of the run folder that holds its rows, such as ``steps.csv``; empty if it has none."""

    @classmethod
    def looks_at_gradients(cls) -> bool:
        """Whether it must be called between the backward pass and the end of the optimizer's step.

        A step that is captured as one graph has no such point, so that only the passes are then captured. By default
        this follows from the methods that are overridden.
        """
        return any(_overrides(cls, method) for method in ("after_backward", "before_update", "before_optimizer"))

    def begin(self) -> None:
        """Called before steps begin."""

    def before_backward(self, step: int) -> None:
        """Called before a forward and backward pass of step ``step``, or before all of it if it is a single graph."""

    def after_backward(self, step: int, share: float) -> None:
        """Called when the gradients of a micro-batch are added; its mean loss had the weight ``share`` in the step."""

    def before_update(self, info: StepInfo) -> None:
        """Called before clipping, when the gradients are those of the whole step, summed over ranks."""

    def before_optimizer(self, info: StepInfo) -> None:
        """Called just before the optimizer."""

    def after_optimizer(self, info: StepInfo, loss: Tensor) -> None:
        """Called after the update; ``loss``, (), is this rank's share of the mean loss of the step, on the device."""

    def after_step(self, info: StepInfo) -> None:
        """Called at the end of a step, after any flush that follows it."""

    def end(self) -> None:
        """Called when no step follows for a while, after waiting for the device."""

    def flush(self, epoch: int) -> Sequence[Row]:
        """Return the rows for the table since the last call; may wait for the device."""
        return ()

    def flushed(self, tables: Mapping[str, Sequence[Row]]) -> None:
        """Called with the rows that all observers flushed, by table."""

    def check(self) -> None:
        """Called when the flushed rows are written. Raises what must end the run, on all ranks together."""

    def evaluated(self, row: Row) -> None:
        """Called after an evaluation with its ``row`` of ``epochs.csv``."""

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps of the observer."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what ``state_dict`` returned."""

    def summary(self) -> dict[str, Any]:
        """Values for fields of ``summary.json``, by name."""
        return {}

    def close(self) -> None:
        """Called when the run ends."""


class Observers:
    """The observers of a run as one. A step calls only methods that one of them overrides."""

    def __init__(self, observers: Sequence[StepObserver]) -> None:
        self.all = list(observers)
        self.tables = [observer.table for observer in self.all if observer.table]
        self._before_backward = self._overriding("before_backward")
        self._after_backward = self._overriding("after_backward")
        self._before_update = self._overriding("before_update")
        self._before_optimizer = self._overriding("before_optimizer")
        self._after_optimizer = self._overriding("after_optimizer")
        self._after_step = self._overriding("after_step")

    def begin(self) -> None:
        """As in ``StepObserver``."""
        for observer in self.all:
            observer.begin()

    def before_backward(self, step: int) -> None:
        """As in ``StepObserver``."""
        for call in self._before_backward:
            call(step)

    def after_backward(self, step: int, share: float) -> None:
        """As in ``StepObserver``."""
        for call in self._after_backward:
            call(step, share)

    def before_update(self, info: StepInfo) -> None:
        """As in ``StepObserver``."""
        for call in self._before_update:
            call(info)

    def before_optimizer(self, info: StepInfo) -> None:
        """As in ``StepObserver``."""
        for call in self._before_optimizer:
            call(info)

    def after_optimizer(self, info: StepInfo, loss: Tensor) -> None:
        """As in ``StepObserver``."""
        for call in self._after_optimizer:
            call(info, loss)

    def after_step(self, info: StepInfo) -> None:
        """As in ``StepObserver``."""
        for call in self._after_step:
            call(info)

    def end(self) -> None:
        """As in ``StepObserver``."""
        for observer in self.all:
            observer.end()

    def flush(self, epoch: int) -> dict[str, Sequence[Row]]:
        """Rows since the last call, by table."""
        tables = {observer.table: rows for observer in self.all if (rows := observer.flush(epoch)) and observer.table}
        for observer in self.all:
            observer.flushed(tables)
        return tables

    def check(self) -> None:
        """As in ``StepObserver``."""
        for observer in self.all:
            observer.check()

    def evaluated(self, row: Row) -> None:
        """As in ``StepObserver``."""
        for observer in self.all:
            observer.evaluated(row)

    def state_dict(self) -> dict[str, Any]:
        """The state that a checkpoint keeps of each observer, by name."""
        return {observer.name: observer.state_dict() for observer in self.all if observer.name}

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned; an observer that was not there then starts from scratch."""
        for observer in self.all:
            if observer.name in states:
                observer.load_state_dict(states[observer.name])

    def summary(self) -> dict[str, Any]:
        """Values for fields of ``summary.json``, from all observers."""
        return {key: value for observer in self.all for key, value in observer.summary().items()}

    def close(self) -> None:
        """As in ``StepObserver``."""
        for observer in self.all:
            observer.close()

    def _overriding(self, method: str) -> list[Callable[..., None]]:
        return [getattr(observer, method) for observer in self.all if _overrides(type(observer), method)]


def _overrides(kind: type[StepObserver], method: str) -> bool:
    return getattr(kind, method) is not getattr(StepObserver, method)
