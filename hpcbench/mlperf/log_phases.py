"""The phases of a run in seconds, from the intervals in its official log."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from hpcbench.results.mllog_reader import Event

LONGEST_S = 400 * 86_400.0
MOST_STEPS = 2**53
MOST_EPOCHS = 1000
"""Most epochs of a block; a larger ``epoch_count`` is not believed."""
STOPS = ("epoch_stop", "block_stop")
BEGINS = ("epoch_start", "block_start", "eval_start")
ENDS = (*STOPS, "eval_stop", "eval_error", "eval_accuracy")
WRONG_ENDS = "the clock of the run contradicts its lines: "
LEAST_WRONG_S = 1.0
"""Times of lines may differ by less from those of ``run_start`` and ``run_stop``: they are of several processes."""
_time_ms = attrgetter("time_ms")


@dataclass
class LogPhases:
    """What a log says about times, in seconds; ``None`` is what it does not say."""

    start_unix_s: float | None = None
    """Time of ``run_start``."""
    time_to_train_s: float | None = None
    """``run_start`` to ``run_stop``."""
    init_s: float | None = None
    """``init_start`` to ``init_stop``."""
    staging_s: float | None = None
    """All intervals ``staging_start`` to ``staging_stop`` that begin within the run; of a staging that ran beside
    training, what lies outside epochs."""
    staging_before_s: float | None = None
    """Those that begin before ``run_start``."""
    epochs_s: list[float] = field(default_factory=list)
    """Training of each epoch: ``epoch_start`` to ``epoch_stop``, without evaluation and staging in between.

    In a log of blocks ``block_start`` to ``block_stop``, in equal parts for the ``epoch_count`` epochs of a block.
    """
    evaluations_s: list[float] = field(default_factory=list)
    """``eval_start`` to ``eval_stop``."""
    notes: list[str] = field(default_factory=list)
    """Where the log contradicts itself."""

    @property
    def rest_s(self) -> float | None:
        """The time of the run without staging, training and evaluation."""
        if self.time_to_train_s is None:
            return None
        return self.time_to_train_s - (self.staging_s or 0.0) - sum(self.epochs_s) - sum(self.evaluations_s)


Interval = tuple[float, float]


def phases_of(events: Sequence[Event], *, staged_beside: bool = False) -> LogPhases:
    """Return the phases of a run from ``events``, the lines of its log in their order.

    ``staged_beside``: whether the run trained while it staged, so that an epoch keeps what it shares with the staging.
    """
    phases = LogPhases()
    start, stop = _first(events, "run_start"), _first(events, "run_stop")
    phases.init_s = _length(_intervals(events, "init_start", "init_stop", phases))
    back_ms = max((before.time_ms - later.time_ms for before, later in pairwise(events)), default=0.0)
    if back_ms > 0:
        phases.notes.append(f"the clock goes back by {'a second or more' if back_ms >= 1000 else 'less than a second'}")
    if start is None:
        return phases
    phases.start_unix_s = start / 1e3
    if stop is None or not 0 < stop - start < LONGEST_S * 1e3:
        phases.notes.append("no run_stop after run_start" if stop is None else "run_stop is not after run_start")
        return phases
    phases.time_to_train_s = (stop - start) / 1e3
    phases.notes += _wrong_ends(events, start, stop)
    staged = _intervals(events, "staging_start", "staging_stop", phases)
    before = [interval for interval in staged if interval[0] < start]
    within = [interval for interval in staged if start <= interval[0] < stop]
    phases.staging_before_s, phases.staging_s = _length(before), _length(within)
    evaluated = _cut(_intervals(events, "eval_start", "eval_stop", phases), start, stop)
    phases.evaluations_s = [(end - begin) / 1e3 for begin, end in evaluated]
    numbered = [event for event in events if event.key.startswith("eval_") or event.key in STOPS]
    numbered.sort(key=_time_ms)
    epochs = [epoch for epoch in _epochs(events, stop) if start <= epoch[0] < stop]
    if staged_beside and within:
        trains = [(begin, end) for begin, end, _ in epochs]
        phases.staging_s = sum(end - begin - _overlap((begin, end), trains) for begin, end in within) / 1e3
        within = []
    for begin, end, count in epochs:
        near = [evaluation for evaluation in evaluated if evaluation[1] > begin and evaluation[0] < end]
        inside = [evaluation for evaluation in near if begin <= evaluation[0]]
        ends_before = len(inside) == 1 and not _trains_after(numbered, inside[0], end)
        trained = (begin, inside[0][0] if ends_before else end)
        taken = _overlap(trained, near) + _overlap(trained, within)
        phases.epochs_s += [(trained[1] - trained[0] - taken) / 1e3 / count] * count
    if not sum(phases.epochs_s):
        phases.notes.append("no seconds of training between epoch_start and epoch_stop, or block_start and block_stop")
    return phases


def _first(events: Sequence[Event], key: str) -> float | None:
    return next((event.time_ms for event in events if event.key == key), None)


def _wrong_ends(events: Sequence[Event], start: float, stop: float) -> list[str]:
    """What is wrong with ``run_start`` and ``run_stop``: there are several, or lines between have times outside.

    Such a run lasted longer than from one to the other.
    """
    keys = [event.key for event in events]
    notes = [f"{keys.count(key)} lines {key}, of which the first counts"
             for key in ("run_start", "run_stop") if keys.count(key) > 1]  # fmt: skip
    first, last = keys.index("run_start"), keys.index("run_stop")
    between = events[first:last]
    early_s = (start - min((event.time_ms for event in between if event.key in BEGINS), default=start)) / 1e3
    late_s = (max((event.time_ms for event in between if event.key in ENDS), default=stop) - stop) / 1e3
    wrong = []
    if early_s >= LEAST_WRONG_S:
        wrong.append(f"run_start is {early_s:.3g} s later than a line below it")
    if late_s >= LEAST_WRONG_S:
        wrong.append(f"run_stop is {late_s:.3g} s earlier than a line above it")
    return notes + ([f"{WRONG_ENDS}{', '.join(wrong)}"] if wrong else [])


def _length(intervals: Sequence[Interval]) -> float | None:
    return sum(end - begin for begin, end in intervals) / 1e3 if intervals else None


def _intervals(events: Sequence[Event], first: str, last: str, phases: LogPhases) -> list[Interval]:
    """Intervals from each ``first`` to the next ``last``; one that ends before it begins is left out, with a note."""
    made: list[Interval] = []
    begin: float | None = None
    for event in events:
        if event.key == first:
            begin = event.time_ms
        elif event.key == last and begin is not None:
            if event.time_ms < begin:
                phases.notes.append(f"{last} before {first}")
            else:
                made.append((begin, event.time_ms))
            begin = None
    return made


def _epochs(events: Sequence[Event], stop: float) -> list[tuple[float, float, int]]:
    """Intervals from each ``epoch_start`` to its ``epoch_stop``, else to the next ``epoch_start`` or the run's end.

    Each with its number of epochs: 1, and of a block with its end what its ``epoch_count`` says. A log without
    ``epoch_start`` is read by its blocks.
    """
    word = "epoch" if any(event.key == "epoch_start" for event in events) else "block"
    made: list[tuple[float, float, int]] = []
    begin: Event | None = None
    for event in events:
        if event.key not in (f"{word}_start", f"{word}_stop", "run_stop"):
            continue
        if begin is not None and event.time_ms >= begin.time_ms:
            ended = event.key == "block_stop"
            made.append((begin.time_ms, min(event.time_ms, stop), _epoch_count(begin) if ended else 1))
        begin = event if event.key == f"{word}_start" else None
    return made


def epochs_begun(events: Sequence[Event]) -> int:
    """The number of epochs that began in ``events``, whatever the times of their lines."""
    word = "epoch" if any(event.key == "epoch_start" for event in events) else "block"
    return sum(_epoch_count(event) if word == "block" else 1 for event in events if event.key == f"{word}_start")


def _epoch_count(block: Event) -> int:
    """The epochs of a block; 1 if its start does not say."""
    count = block.metadata.get("epoch_count")
    if isinstance(count, bool) or not isinstance(count, int | float):
        return 1
    return int(count) if 1 <= count <= MOST_EPOCHS else 1


def _trains_after(events: Sequence[Event], evaluated: Interval, end: float) -> bool:
    """Whether steps of the epoch follow an evaluation: by the step numbers, or for it is of a fraction of the epoch.

    ``events`` are sorted by time.
    """
    first, last = bisect_left(events, evaluated[0], key=_time_ms), bisect_right(events, end, key=_time_ms)
    later = events[first:last]
    evaluations = [event for event in later if event.key not in STOPS]
    stops = [event for event in later if event.key in STOPS and event.time_ms >= evaluated[1]]
    within = any(event.epoch is not None and event.epoch % 1 for event in evaluations)
    return bool(stops) and (within or 0 < _steps(evaluations) < _steps(stops))


def _steps(events: Sequence[Event]) -> float:
    """The largest ``step_num`` of the events, of those that can be one; 0 if there is none."""
    numbers = [event.metadata.get("step_num") for event in events]
    steps = [float(number) for number in numbers if isinstance(number, int | float) and 0 <= number < MOST_STEPS]
    return max(steps, default=0.0)


def _cut(intervals: Sequence[Interval], start: float, stop: float) -> list[Interval]:
    """Intervals that begin within the run, cut at its end."""
    return [(begin, min(end, stop)) for begin, end in intervals if start <= begin < stop]


def _overlap(one: Interval, others: Sequence[Interval]) -> float:
    return sum(max(0.0, min(one[1], end) - max(one[0], begin)) for begin, end in others)
