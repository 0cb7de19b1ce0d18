"""The roll call: one rank asks all others for their state, and finds which of them hangs."""

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
"""How long the stacks of the ranks may take to arrive."""


@dataclass(frozen=True)
class Member:
    """What other ranks of the node need to inspect a rank."""

    rank: int
    node: str
    machine: str
    """A name that is the same for processes that see each other under the same process ids."""
    pid: int
    descriptor: int
    """The file descriptor of its ``Progress``."""


class Star:
    """A center rank, and the messages between it and all others; ``tell`` sends to the center, or from it to all."""

    def __init__(self, center: int, rank: int, tell: Callable[[dict[str, Any]], None]) -> None:
        self.center = center
        self.is_center = rank == center
        self.tell = tell
        self.asked_at: float | None = None
        """When this rank first asked the center about its suspicion, without an answer since."""

    def ask(self, now: float, state: RankState) -> None:
        """Report a suspicion to the center."""
        if self.asked_at is None:
            self.asked_at = now
        self.tell({"kind": "hang-suspicion", "state": state.as_message()})

    def silent_s(self, now: float) -> float:
        """For how long the center has not answered, in seconds."""
        return 0.0 if self.asked_at is None else now - self.asked_at


class RollCall:
    """The answers of the other ranks, on the center of a star, while any rank suspects a hang.

    ``now`` is always the time that this process has run (``StandstillClock.now``), in seconds.
    """

    def __init__(self, star: Star, members: list[Member], own_member: Member, silence_s: float, every_s: float) -> None:
        self._star = star
        self._members = members
        self._own = own_member
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
        """Note that a rank has stood still for long."""
        if self._suspected_at is None:
            self._began_at, self._called_at = now, float("-inf")
        self._suspected_at = now

    def hear(self, now: float, message: dict[str, Any]) -> None:
        """Take a message from another rank."""
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

    def look(self, now: float, own_state: RankState) -> list[RankState] | None:
        """Ask again if it is time to; returns the states of all ranks if some of them hang."""
        if self._suspected_at is None:
            return None
        if now - self._suspected_at > 3 * self._every_s:
            self._suspected_at = None
            return None
        if now - self._called_at >= self._every_s:
            self._called_at = now
            self._star.tell({"kind": "hang-call"})
        states = self._states(now, own_state)
        return states if states is not None and culprits(states) is not None else None

    def _states(self, now: float, own_state: RankState) -> list[RankState] | None:
        """The states of all ranks, once each has answered or been silent for too long."""
        states = []
        with self._lock:
            for member in self._members:
                if member.rank == own_state.rank:
                    states.append(own_state)
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
        """Gather the stacks of all ranks; ``None`` if a silent rank answers after all.

        ``pump`` receives messages for a moment.
        """
        machines = {member.rank: member.machine for member in self._members}
        inspectors = {machines[state.rank]: state.rank for state in reversed(states) if not state.silent}
        silent = [state.rank for state in states if state.silent]
        inspect = {str(rank): inspectors.get(machines[rank]) for rank in silent}
        with self._lock:
            self._answers.clear()
        self._star.tell({"kind": "hang-gather", "inspect": inspect})
        own_answer = gather(self._own, self._members, inspect)
        awaited = {state.rank for state in states if not state.silent and state.rank != self._own.rank}
        deadline = time.monotonic() + GATHER_S
        while awaited - set(self._answers) and time.monotonic() < deadline:
            pump()
        with self._lock:
            answers = [own_answer, *self._answers.values()]
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


def gather(own_member: Member, members: list[Member], inspect: dict[str, int | None]) -> dict[str, Any]:
    """This rank's stacks, and what it can tell about the silent ranks of its node that it was asked to inspect."""
    stacks: dict[str, str] = {str(own_member.rank): own_stacks()}
    seen: dict[str, dict[str, Any]] = {}
    for rank, inspector in inspect.items():
        if inspector == own_member.rank:
            member = members[int(rank)]
            seen[rank] = {"stopped": is_stopped(member.pid)}
            if (read := read_progress(member.pid, member.descriptor)) is not None:
                seen[rank] |= {"phase": read[0], "step": read[1]}
            stacks[rank] = f"process {member.pid}: {stacks_of(member.pid, member.descriptor)}"
    return {"kind": "hang-stacks", "rank": own_member.rank, "stacks": stacks, "seen": seen}
