"""Finds which rank hangs, from what all ranks say about themselves, and reports it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpcbench.results.run_folder import write_atomic

TEXT_NAME, JSON_NAME = "hang.txt", "hang.json"


@dataclass(frozen=True)
class RankState:
    """What a rank is doing, how long it has stood still, and how long it may."""

    rank: int
    node: str
    phase: str = "unknown"
    step: int = -1
    """The last optimizer step that is done; -1 if unknown."""
    standing_s: float = 0.0
    bound_s: float = 0.0
    waiting: bool = False
    """Whether its main thread is waiting in communication with other ranks."""
    silent: bool = False
    """Whether its process does not answer: it is stopped, lost with its node, or holds the interpreter lock."""
    stopped: bool = False
    """Whether the system reports its process as stopped."""

    @property
    def over(self) -> bool:
        """Whether it has stood still for longer than it may."""
        return self.standing_s >= self.bound_s

    def as_message(self) -> dict[str, Any]:
        """The fields as a message."""
        return asdict(self)


def culprits(states: Sequence[RankState]) -> list[int] | None:
    """The ranks that the others wait for; ``None`` if nothing hangs (yet), empty if no rank stands out.

    These are the ranks that do not answer; if there are none, those that stand still beyond their bound in something
    other than waiting; if all wait for one another, those that are steps behind. Otherwise some rank still works
    within its own bound, and is waited for.
    """
    if not any(state.over for state in states if not state.silent):
        return None
    if silent := [state.rank for state in states if state.silent]:
        return silent
    standing = [state for state in states if state.over and not state.waiting]
    if standing and len(standing) < len(states):
        return [state.rank for state in standing]
    if not all(state.over for state in states):
        return None
    first = min(state.step for state in states)
    behind = [state.rank for state in states if state.step == first]
    return behind if len(behind) < len(states) or len(states) == 1 else []


@dataclass(frozen=True)
class HangReport:
    """A hang: who, where and since when, with the stacks of all ranks."""

    culprits: list[int]
    states: list[RankState]
    """The states of all ranks, by rank."""
    stacks: dict[int, str]
    reporter: int
    """The rank that writes this: 0, or another one if rank 0 does not answer."""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def finding(self) -> str:
        """Which ranks stood still, for how long, and in what."""
        if not self.culprits:
            state = max(self.states, key=lambda state: state.standing_s)
            return (
                f"all {len(self.states)} ranks stood still for {state.standing_s:.0f} s in {state.phase}"
                f"{at_step(state)}, and none stands out"
            )
        state = next(state for state in self.states if state.rank == self.culprits[0])
        others = len(self.culprits) - 1
        also = f" and {others} other rank{'s' if others > 1 else ''}" if others else ""
        stopped = ", its process stopped" if state.stopped else ", its process not answering" if state.silent else ""
        return f"{who(state)}{also} stood still for {state.standing_s:.0f} s in {state.phase}{at_step(state)}{stopped}"

    def as_json(self) -> str:
        """The report for programs."""
        tree = asdict(self) | {"finding": self.finding()}
        tree["stacks"] = {str(rank): text for rank, text in self.stacks.items()}
        return json.dumps(tree, indent=2) + "\n"

    def as_text(self) -> str:
        """The report for people: a line for each rank, and every stack once."""
        lines = [f"{self.time}  {self.finding()}", ""]
        lines += [f"  {'*' if state.rank in self.culprits else ' '} {describe(state)}" for state in self.states]
        together: dict[str, list[int]] = {}
        for rank, text in sorted(self.stacks.items(), key=lambda item: (item[0] not in self.culprits, item[0])):
            together.setdefault(text, []).append(rank)
        for text, ranks in together.items():
            lines += ["", f"--- rank{'s' if len(ranks) > 1 else ''} {numbers(ranks)}", text.rstrip()]
        without = [state.rank for state in self.states if state.rank not in self.stacks]
        if without:
            lines += ["", f"--- rank{'s' if len(without) > 1 else ''} {numbers(without)}", "the stacks are not known"]
        return "\n".join(lines) + "\n"


def write_report(folder: Path, report: HangReport) -> Path:
    """Write ``hang.json`` and ``hang.txt``; returns the path of the latter. Raises ``OSError``."""
    write_atomic(folder / JSON_NAME, report.as_json())
    write_atomic(folder / TEXT_NAME, report.as_text())
    return folder / TEXT_NAME


def who(state: RankState) -> str:
    """A rank and its node."""
    return f"rank {state.rank} on {state.node}" if state.node else f"rank {state.rank}"


def at_step(state: RankState) -> str:
    """The step, if it is known."""
    return f" (step {state.step})" if state.step >= 0 else ""


def describe(state: RankState) -> str:
    """A rank in one line."""
    if state.silent:
        how = "its process is stopped" if state.stopped else "its process does not answer"
        return f"{who(state)}: {state.phase}{at_step(state)}; {how}"
    waiting = ", waiting for other ranks" if state.waiting else ""
    return (
        f"{who(state)}: {state.phase}{at_step(state)}, nothing new for {state.standing_s:.0f} s "
        f"(bound {state.bound_s:.0f} s){waiting}"
    )


def numbers(ranks: Iterable[int]) -> str:
    """Ranks as ranges: 0, 2 to 5."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
