"""The search for the learning rates of one optimizer: a pure function of its grid and of the status of its runs.

Multiples of the rule's rate are tried with one seed. While the best of a row is the smallest or the largest of them,
the window of all rows grows by one multiple on that side. Within the window the search is successive halving: the
better half of the multiples gets a further seed, the better half of these the next one (Karnin, Koren and Somekh 2013,
"Almost optimal exploration in multi-armed bandits"; Jamieson and Talwalkar 2016, arXiv:1502.07943). Here an arm is a
rate, and a pull of it is a run with its own seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Generic, TypeVar

from hpcbench.study.run_status import RunStatus

Row = TypeVar("Row", bound=Hashable)
Score = tuple[int, int, float, float]
LEAST_COMPARED = 2
"""Fewest multiples that get a further seed; one alone would have nothing to be compared with."""


@dataclass(frozen=True)
class Grid:
    """What a search tries in every row; ``multipliers`` are ascending, and at least two."""

    multipliers: tuple[float, ...]
    widenings: int = 0
    """How often the window may grow, each time by at most one multiple on each side."""
    seeds: int = 1
    """Seeds by which the best rates are compared."""

    @property
    def ladder(self) -> tuple[float, ...]:
        """Every multiple that the window could come to hold; the window is always a slice of this."""
        below = beyond(self.multipliers[::-1], self.widenings)
        return (*below[::-1], *self.multipliers, *beyond(self.multipliers, self.widenings))

    @property
    def fewest_runs(self) -> int:
        """Runs of a row if its window never grows and none of its runs diverges."""
        return sum(rungs(len(self.multipliers), self.seeds))

    @property
    def most_runs(self) -> int:
        """The most runs that a row can take."""
        first = len(self.multipliers)
        windows = [rungs(first + 2 * widened, self.seeds) for widened in range(self.widenings + 1)]
        return sum(min(len(self.ladder), sum(sizes)) for sizes in zip(*windows, strict=True))


@dataclass(frozen=True)
class Trial:
    """A run of a search: a multiple of the rule's rate, and the number of its seed in the search, from 0."""

    multiplier: float
    number: int


@dataclass(frozen=True)
class Choice:
    """The multiplier chosen for a row; ``None`` during the search, or where there is none."""

    multiplier: float | None
    failed: bool = False
    """No rate was of use. Where all runs diverged, the multiplier is the smallest: the row shows that, too."""
    blocked: bool = False
    """All runs diverged or failed, and some failed: they say nothing of rates, so the row waits for a retry."""


@dataclass(frozen=True)
class RowSearch:
    """The search of one row within a window."""

    trials: tuple[Trial, ...]
    """Trials that are known to be needed."""
    choice: Choice
    later: int = 0
    """Number of runs that follow in this window, with multiples that the trials decide."""
    reached: bool = False
    """Whether a trial reached the target."""

    @property
    def is_complete(self) -> bool:
        """Whether the trials have ended."""
        return self.choice.multiplier is not None or self.choice.failed or self.choice.blocked


@dataclass(frozen=True)
class Search(Generic[Row]):
    """The search of all rows of an optimizer, as far as it is known."""

    window: tuple[float, ...]
    rows: Mapping[Row, RowSearch]
    """The search of each row, with the trials of all windows."""
    widened: int = 0
    """How often the window has grown."""
    is_settled: bool = False
    """Whether the window has stopped growing."""

    def at_edge(self, row: Row) -> bool:
        """Whether the chosen rate is the smallest or the largest that was tried."""
        return self.rows[row].choice.multiplier in (self.window[0], self.window[-1])


Look = Callable[[Trial], RunStatus]
"""The status of a trial of a row."""


def search(grid: Grid, looks: Mapping[Row, Look]) -> Search[Row]:
    """The state of a search, from the status of its trials.

    A window can grow when all rows have ended in it: first with one seed alone, so that a window that is too narrow
    costs no further seeds, then with all. No row has a choice before the window has stopped growing.
    """
    ladder, low = grid.ladder, grid.widenings
    high = low + len(grid.multipliers)
    trials: dict[Row, dict[Trial, None]] = {row: {} for row in looks}
    for widened in range(grid.widenings + 1):
        window, is_last = ladder[low:high], widened == grid.widenings
        for seeds in (grid.seeds,) if is_last else dict.fromkeys((1, grid.seeds)):
            row_searches = {row: within(window, seeds, grid.seeds, look) for row, look in looks.items()}
            for row, row_search in row_searches.items():
                trials[row].update(dict.fromkeys(row_search.trials))
            if is_last or not all(row_search.is_complete for row_search in row_searches.values()):
                return Search(window, joined(row_searches, trials, looks, is_last), widened, is_last)
            below, above = sides(window, row_searches)
            if below or above:
                low, high = low - below, high + above
                break
        else:
            return Search(window, joined(row_searches, trials, looks, True), widened, True)
    raise AssertionError("the last window ends the search")


def within(window: Sequence[float], seeds: int, all_seeds: int, look: Look) -> RowSearch:
    """The search of a row in a window with the first ``seeds`` of its ``all_seeds``."""
    compared, trials = list(window), list[Trial]()
    sizes = rungs(len(window), all_seeds)
    for number in range(seeds):
        rung = [Trial(multiplier, number) for multiplier in sorted(compared)]
        trials += rung
        if not all(look(trial).final for trial in rung):
            return RowSearch(tuple(trials), Choice(None), sum(sizes[number + 1 :]))
        best = ranked(compared, number + 1, look)
        if not best:
            blocked = any(look(trial).status == "failed" for trial in rung)
            return RowSearch(tuple(trials), Choice(None, blocked=True) if blocked else Choice(min(window), failed=True))
        compared = best[: half(len(compared))]
        if len(compared) < LEAST_COMPARED:
            break
    return RowSearch(tuple(trials), Choice(best[0]), sum(sizes[seeds:]) if len(compared) > 1 else 0)


def joined(
    row_searches: Mapping[Row, RowSearch],
    trials: Mapping[Row, Mapping[Trial, None]],
    looks: Mapping[Row, Look],
    is_settled: bool,
) -> dict[Row, RowSearch]:
    """The rows with the trials of all windows, and without a choice while the window may grow."""
    return {
        row: RowSearch(
            tuple(trials[row]),
            row_search.choice if is_settled else Choice(None),
            row_search.later,
            any(looks[row](trial).status == "reached" for trial in trials[row]),
        )
        for row, row_search in row_searches.items()
    }


def ranked(multipliers: Sequence[float], seeds: int, look: Look) -> list[float]:
    """The multiples that were of use, best first; among equals, the nearest to the rule's rate comes first."""
    states = {m: [look(Trial(m, number)) for number in range(seeds)] for m in multipliers}
    of_use = [m for m in multipliers if any(state.done for state in states[m])]
    return sorted(of_use, key=lambda m: (score(states[m]), abs(math.log(m)), m))


def score(states: Sequence[RunStatus]) -> Score:
    """The score of a rate, lower being better: the mean over its seeds of epochs to the target.

    A run that did not reach the target counts as more epochs than any run has: so the number of these decides first,
    then how many of them diverged or failed, then the mean of the others, then the mean quality.
    """
    reached = [float(epochs) for state in states if state.status == "reached" and (epochs := epochs_of(state))]
    useless = sum(not state.done for state in states)
    qualities = [quality(state) for state in states if state.done]
    mean = fmean(reached) if reached else math.inf
    return len(states) - len(reached), useless, mean, fmean(qualities) if qualities else math.inf


def epochs_of(state: RunStatus) -> float | None:
    """Epochs to the target."""
    return None if state.summary is None else state.summary.epochs_to_target


def quality(state: RunStatus) -> float:
    """The best quality of a run, with its sign such that lower is better."""
    summary = state.summary
    if summary is None or summary.best is None:
        return math.inf
    return summary.best if summary.better == "lower" else -summary.best


def sides(window: Sequence[float], row_searches: Mapping[Row, RowSearch]) -> tuple[bool, bool]:
    """Whether a better rate may lie below the window, or above it, for one of the rows.

    If the largest multiple diverged, the best one is not at the upper edge. If all diverged, lower ones may not.
    """
    below = above = False
    for choice in (row_search.choice for row_search in row_searches.values()):
        below |= choice.multiplier == window[0]  # also where all diverged
        above |= choice.multiplier == window[-1] and not choice.failed
    return below, above


def beyond(multipliers: Sequence[float], count: int) -> tuple[float, ...]:
    """The ``count`` multiples that follow the last one, each by the ratio of the two outermost."""
    before, last = multipliers[-2:]
    return tuple(float(f"{last * (last / before) ** step:.6g}") for step in range(1, count + 1))


def half(count: int) -> int:
    """How many of ``count`` multiples get the next seed."""
    return max(LEAST_COMPARED, -(-count // 2))


def rungs(count: int, seeds: int) -> list[int]:
    """How many of a window's ``count`` multiples run with each seed, if none diverges."""

    def sizes() -> Iterator[int]:
        left = count
        for _ in range(seeds):
            yield left
            left = half(left)

    return list(sizes())
