"""The roll call: one rank asks all the others how they stand, and finds which of them hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hpcbench.train.hang_report import HangReport, RankState, culprits
from hpcbench.train.process_stacks import is_stopped, own_stacks, stacks_of
from hpcbench.train.progress import read_progress

GATHER_S = 5.0
"""How long the stacks of the ranks may take to come."""


@dataclass(frozen=True)
class Member:
    """A rank as the others of its node may look at it."""

    rank: int
    node: str
    machine: str
    """The same for processes that see each other under the same process ids."""
    pid: int
    descriptor: int
    """Of its ``Progress``."""


class Star:
    """A rank in the middle, and the messages between it and all others; ``tell`` sends to the middle, or to all."""

    def __init__(self, center: int, rank: int, tell: Callable[[dict[str, Any]], None]) -> None:
        self.center = center
        self.is_center = rank == center
        self.tell = tell
        self.asked_at: float | None = None
        """When this rank first asked the middle about its suspicion, without an answer since."""

    def ask(self, now: float, state: RankState) -> None:
        """Tell the middle of a suspicion."""
        if self.asked_at is None:
            self.asked_at = now
        self.tell({"kind": "hang-suspicion", "state": state.as_message()})

    def silent_s(self, now: float) -> float:
        """For how long the middle has not answered."""
        return 0.0 if self.asked_at is None else now - self.asked_at


class RollCall:
    """On the rank in the middle of a star: what the others answered, while anybody suspects a hang.

    ``now`` is always the time that this process has run (``StandstillClock.now``), in seconds.
    """

    def __init__(self, star: Star, members: list[Member], own: Member, silence_s: float, every_s: float) -> None:
        self._star = star
        self._members = members
        self._own = own
        self._silence_s = silence_s
        self._every_s = every_s
        self._last_known: dict[int, RankState] = {}
        self._heard_at: dict[int, float] = {}
        self._closed: set[int] = set()
        self._suspected_at: float | None = None
        self._began_at = self._called_at = 0.0
        self._answers: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def suspect(self, now: float) -> None:
        """Somebody stands still for long."""
        if self._suspected_at is None:
            self._began_at, self._called_at = now, float("-inf")
        self._suspected_at = now

    def hear(self, now: float, message: dict[str, Any]) -> None:
        """What another rank says."""
        with self._lock:
            if message["kind"] == "hang-closed":
                self._closed.add(int(message["rank"]))
            elif message["kind"] == "hang-stacks":
                self._answers[int(message["rank"])] = message
            else:
                state = RankState(**message["state"])
                self._last_known[state.rank] = state
                self._heard_at[state.rank] = now
        if message["kind"] == "hang-suspicion":
            self.suspect(now)

    def look(self, now: float, own: RankState) -> list[RankState] | None:
        """Ask again where it is time to; the states of all ranks if some of them hang."""
        if self._suspected_at is None:
            return None
        if now - self._suspected_at > 3 * self._every_s:
            self._suspected_at = None
            return None
        if now - self._called_at >= self._every_s:
            self._called_at = now
            self._star.tell({"kind": "hang-call"})
        states = self._states(now, own)
        return states if states is not None and culprits(states) is not None else None

    def _states(self, now: float, own: RankState) -> list[RankState] | None:
        """Of all ranks, once each has answered or is silent for too long."""
        states = []
        with self._lock:
            for member in self._members:
                if member.rank == own.rank:
                    states.append(own)
                    continue
                if member.rank in self._closed:
                    continue
                known = self._last_known.get(member.rank, RankState(member.rank, member.node))
                heard_at = self._heard_at.get(member.rank, float("-inf"))
                if now - max(heard_at, self._began_at) >= self._silence_s:
                    states.append(replace(known, silent=True))
                elif heard_at < self._began_at:
                    return None
                else:
                    states.append(known)
        return states

    def report(self, states: list[RankState], pump: Callable[[], None]) -> HangReport | None:
        """Gather the stacks of all ranks; ``None`` if one that was silent answers after all.

        ``pump`` lets messages come in for a moment.
        """
        machines = {member.rank: member.machine for member in self._members}
        inspectors = {machines[state.rank]: state.rank for state in reversed(states) if not state.silent}
        silent = [state.rank for state in states if state.silent]
        inspect = {str(rank): inspectors.get(machines[rank]) for rank in silent}
        with self._lock:
            self._answers.clear()
        self._star.tell({"kind": "hang-gather", "inspect": inspect})
        own = gather(self._own, self._members, inspect)
        awaited = {state.rank for state in states if not state.silent and state.rank != self._own.rank}
        deadline = time.monotonic() + GATHER_S
        while awaited - set(self._answers) and time.monotonic() < deadline:
            pump()
        with self._lock:
            answers = [own, *self._answers.values()]
            revived = set(silent) & set(self._answers)
        if revived:
            return None
        stacks = {int(rank): text for answer in answers for rank, text in answer["stacks"].items()}
        looked_at = {int(rank): seen for answer in answers for rank, seen in answer["seen"].items()}
        longest = max(state.standing_s for state in states if not state.silent)
        seen = [
            replace(state, **looked_at.get(state.rank, {}), standing_s=max(longest, state.standing_s))
            if state.silent
            else state
            for state in states
        ]
        return HangReport(culprits(states) or [], seen, stacks, self._own.rank)


def gather(own: Member, members: list[Member], inspect: dict[str, int | None]) -> dict[str, Any]:
    """This rank's stacks, and what it can tell of the silent ranks of its node that it was asked to look at."""
    stacks: dict[str, str] = {str(own.rank): own_stacks()}
    seen: dict[str, dict[str, Any]] = {}
    for rank, inspector in inspect.items():
        if inspector == own.rank:
            member = members[int(rank)]
            seen[rank] = {"stopped": is_stopped(member.pid)}
            if (read := read_progress(member.pid, member.descriptor)) is not None:
                seen[rank] |= {"phase": read[0], "step": read[1]}
            stacks[rank] = f"process {member.pid}: {stacks_of(member.pid, member.descriptor)}"
    return {"kind": "hang-stacks", "rank": own.rank, "stacks": stacks, "seen": seen}
