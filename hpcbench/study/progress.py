"""What a study prints while it runs: a plain line for each finished run."""

from __future__ import annotations

from collections.abc import Callable

from hpcbench.results import units
from hpcbench.study.run_status import RunStatus

WORDS = {"absent": "not begun"}
"""What people read instead of the name of a status."""


def say(text: str) -> None:
    """Print a line without delay, also if the output is a file."""
    print(text, flush=True)


class Progress:
    """Counts finished runs, ``done`` from before, and tells how long the rest takes with ``at_once`` side by side.

    For runs in a queue that is unknown: ``at_once`` is 0 then.
    """

    def __init__(self, done: int, at_once: int, speak: Callable[[str], None] = say) -> None:
        self.done = done
        self._at_once = at_once
        self._speak = speak
        self._seconds: list[float] = []

    def finished(self, name: str, state: RunStatus, seconds: float | None, left: int) -> None:
        """Print that a run has ended, after ``seconds`` if that is known; ``left`` runs are still to be made."""
        self.done += state.final
        self._seconds += [] if seconds is None else [seconds]
        ahead = f"{left} left" if left else "none left"
        if left and self._at_once and self._seconds:
            mean = sum(self._seconds) / len(self._seconds)
            ahead += f", about {units.duration(left * mean / self._at_once)}"
        total = str(self.done + left)
        self._speak(f"[{self.done:{len(total)}}/{total}] {name}: {result(state)} ({ahead})")


def result(state: RunStatus) -> str:
    """The end of a run in words."""
    s = state.summary
    if s is None or not state.done:
        return f"{WORDS.get(state.status, state.status)}: {state.reason}"
    quality = f"{s.metric} {units.score(s.metrics.get(s.metric, s.best))}"
    return f"{state.status}, {quality} after {units.counted_epochs(s.epochs)}, {units.duration(s.wall_s)}"
