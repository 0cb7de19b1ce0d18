"""The terminal output of a run, from rank 0."""

from __future__ import annotations

import sys
import time

from staging.print_line import print_line
from staging.progress import Progress


class Console:
    """Prints a line per evaluation; on a terminal, also a live progress bar up to it."""

    def __init__(self, enabled: bool, max_epochs: int) -> None:
        self.enabled = enabled
        self.max_epochs = max_epochs
        self._bar: Progress | None = None
        self._loss: float | None = None
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print a line."""
        if self.enabled:
            print_line(text, sys.stdout)

    def start_epoch(self, epoch: int, steps: int) -> None:
        """Open the bar of an epoch, with the steps up to its next evaluation."""
        self.stop_epoch()
        if self.enabled and sys.stderr.isatty():
            self._bar = Progress(steps, f"epoch {epoch}", "steps")
            self._bar.__enter__()

    def step(self) -> None:
        """Advance the bar by one optimizer step."""
        if self._bar is not None:
            self._bar.advance(1, **({} if self._loss is None else {"loss": f"{self._loss:.4g}"}))

    def loss(self, value: float) -> None:
        """Set the newest loss, which the bar shows."""
        self._loss = value

    def stop_epoch(self) -> None:
        """Close the bar of the epoch."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None

    def epoch(self, row: dict[str, float], metric: str) -> None:
        """Print the line of an evaluation."""
        self.stop_epoch()
        self.say(
            f"epoch {row['epoch']:3}/{self.max_epochs}  loss {row['train_loss']:.4f}  "
            f"{metric} {row[metric]:.4f}  lr {row['lr']:.2e}  {row['samples_per_s']:.1f} samples/s  "
            f"{row['train_s']:.1f} s + {row['eval_s']:.1f} s evaluation"
        )
