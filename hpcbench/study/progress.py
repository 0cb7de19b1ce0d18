"""What a study says while it runs: a plain line for each finished run."""

from __future__ import annotations

from collections.abc import Callable

from hpcbench.results import units
from hpcbench.study.job import Job
from hpcbench.study.outcome import Outcome


def say(text: str) -> None:
    """Print a line at once, into a file as well."""
    print(text, flush=True)


class Progress:
    """Counts finished runs, ``done`` from before, and tells how long the rest takes with ``at_once`` side by side."""

    def __init__(self, done: int, at_once: int, speak: Callable[[str], None] = say) -> None:
        self.done = done
        self._at_once = at_once
        self._speak = speak
        self._seconds: list[float] = []

    def finished(self, job: Job, outcome: Outcome, seconds: float, left: int) -> None:
        """One more run has ended after ``seconds``; ``left`` are still to be made."""
        self.done += 1
        self._seconds.append(seconds)
        mean = sum(self._seconds) / len(self._seconds)
        ahead = f"{left} left, about {units.duration(left * mean / self._at_once)}" if left else "none left"
        total = str(self.done + left)
        self._speak(f"[{self.done:{len(total)}}/{total}] {job.name}: {result(outcome)} ({ahead})")


def result(outcome: Outcome) -> str:
    """The end of a run in words."""
    s = outcome.summary
    if s is None or outcome.status in ("diverged", "crashed"):
        return f"{outcome.status}: {outcome.reason}"
    quality = f"{s.metric} {units.score(s.metrics.get(s.metric, s.best))}"
    return f"{outcome.status}, {quality} after {s.epochs} epochs, {units.duration(s.wall_s)}"
