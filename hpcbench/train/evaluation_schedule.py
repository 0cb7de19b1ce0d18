"""When a run is evaluated: the parts of an epoch, each with an evaluation at its end."""

from __future__ import annotations

from dataclasses import dataclass

from hpcbench.train.state import State


@dataclass(frozen=True)
class Part:
    """The optimizer steps of an epoch up to an evaluation."""

    end: float
    """Epochs of the run at the evaluation, to three digits (six if ``max_steps`` is set); whole at an epoch's end."""
    micro_batches: int | None
    """Micro-batches of the epoch up to the evaluation; unset for all."""

    @property
    def last(self) -> bool:
        """Whether the epoch ends with this part."""
        return self.micro_batches is None


@dataclass(frozen=True)
class EvaluationSchedule:
    """Evaluations in equal parts of an epoch, and after ``max_steps`` if the run stops there."""

    evaluations_per_epoch: int
    max_steps: int | None
    steps_per_epoch: int
    passes_per_step: int
    """Micro-batches of an optimizer step; those of each simulated rank count separately."""

    def has_all_steps(self, state: State) -> bool:
        """Whether the run has made the number of steps that it was asked for, if it was asked for one."""
        return self.max_steps is not None and state.step >= self.max_steps

    def parts_left(self, state: State) -> list[Part]:
        """The parts of the current epoch still to be trained or evaluated, in order, up to its end or ``max_steps``."""
        count, digits = self.evaluations_per_epoch, 3 if self.max_steps is None else 6
        within = [
            Part(
                round(state.epoch + number / count, digits),
                round(number * self.steps_per_epoch / count) * self.passes_per_step,
            )
            for number in range(1, count)
        ]
        # The steps since the last evaluation may be exactly those that end a part.
        done = state.micro_batch - (1 if state.epoch_losses else 0)
        parts = [*(part for part in within if (part.micro_batches or 0) > done), Part(state.epoch + 1, None)]
        return self._up_to_max_steps(parts, state)

    def _up_to_max_steps(self, parts: list[Part], state: State) -> list[Part]:
        """The parts until the run has made ``max_steps``; the last of them then need not end the epoch."""
        per_step = self.passes_per_step
        begun = state.step - -(-state.micro_batch // per_step)  # the last step of an epoch may be shorter
        if self.max_steps is None or begun + self.steps_per_epoch <= max(self.max_steps, state.step):
            return parts
        steps = max(self.max_steps, state.step) - begun
        before = [part for part in parts if not part.last and (part.micro_batches or 0) <= steps * per_step]
        if before and before[-1].micro_batches == steps * per_step:
            return before
        return [*before, Part(round(state.epoch + steps / self.steps_per_epoch, 6), steps * per_step)]
