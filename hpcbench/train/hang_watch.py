"""A rank that stands still ends the run, with its place and its stack in the run folder.

A thread on each rank measures how long its main thread has stood still. When one rank stands still, those that wait for
it do so too. So a rank that has stood still for half its bound tells rank 0, which asks all ranks. The cause is a rank
that does not answer, else one that stands still in something other than waiting (``hang_report.culprits``). If rank 0
itself does not answer, a deputy asks instead, on another node if there is one. In normal operation each rank only sends
an occasional line, from which rank 0 knows the last phase of a node that is lost. The other ranks finish before rank 0
and wait until it has finished.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from hpcbench.parallel.group import Group
from hpcbench.results.checkpoint_files import resume_advice
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.hang_report import HangReport, RankState, write_report
from hpcbench.train.process_stacks import DUMP_SIGNAL, dump_on_signal, waits_for_others
from hpcbench.train.progress import LOOK_S, Bounds, Progress, StandstillClock
from hpcbench.train.roll_call import GATHER_S, Member, RollCall, Star, gather
from staging.print_line import print_line
from staging.ranks.abort import ON_ABORT_S, AbortWatcher
from staging.ranks.connections import Connections
from staging.ranks.process_exit import within
from staging.ranks.world import this_node

T = TypeVar("T")

WRITE_S = 10.0
"""How long the report may take to be written; the run folder's file system may be what hangs."""


class HangWatch:
    """While entered, a rank of ``group`` that stands still for longer than its bound ends all ranks with exit code 1.

    Making one is collective. Through ``progress`` the loop tells what it is doing. ``on_hang`` writes the report and
    returns its path; it is called on one rank, rank 0 unless that does not answer, in a separate thread.
    Then ``watcher`` ends all ranks, and its ``on_abort`` is called as usual. ``node`` names this rank's node. The block
    ends on all ranks when it has ended on rank 0; an error leaves it at once.
    """

    def __init__(
        self, group: Group, watcher: AbortWatcher, bounds: Bounds, *, node: str = "", progress: Progress | None = None
    ) -> None:
        self.progress = progress or Progress()
        self.on_hang: Callable[[HangReport], Path] | None = None
        self.advice: Callable[[], str] = lambda: "start again"
        """What the user can do next."""
        self.stands_in = False
        """Whether this rank ends the run in place of rank 0, which does not answer."""
        self._bounds = bounds
        self._watcher = watcher
        self._rank = group.rank
        self._stop = threading.Event()
        self._entered = False
        self._leaving = False
        self._first_left = threading.Event()
        self._clock = StandstillClock(self.progress, bounds)
        if bounds.hang_s <= 0:
            return
        own_member = Member(group.rank, node or this_node(), this_machine(), os.getpid(), self.progress.descriptor)
        self._own, self._members = own_member, group.all_gather_object(own_member)
        self._silence_s = max(2.0, bounds.hang_s / 2)
        self._every_s = max(1.0, bounds.hang_s / 10)
        self._beat_s = max(self._every_s, group.world_size / 100)
        self._asked_at = self._beat_at = self._patient_until = 0.0
        self._connections = Connections()
        self._stars = [Star(0, group.rank, watcher.tell)]
        if group.world_size > 1:
            away = (member.rank for member in self._members if member.node != self._members[0].node)
            deputy = next(away, 1)
            self._connections.meet(
                _Around(group, deputy),
                own_member.node,
                lambda peer, message: self._hear(self._stars[1], message),
                lambda peer: None,
            )
            self._stars.append(Star(deputy, group.rank, self._connections.tell_all))
        self._calls = {
            star.center: RollCall(star, self._members, own_member, self._silence_s, self._every_s)
            for star in self._stars
            if star.is_center
        }
        watcher.on_message = partial(self._hear, self._stars[0])

    def __enter__(self) -> HangWatch:
        if self._bounds.hang_s > 0:
            self._entered = True
            dump_on_signal(self.progress.descriptor)
            threading.Thread(target=self._run, name="hang-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._entered and self._rank != 0:
            self._wait_for_first()
        self.stop()

    def _wait_for_first(self) -> None:
        """Wait for rank 0, as this rank is done; if another rank ends the run, the watcher ends this process here."""
        self._leaving = True
        self.progress.enter("finalize")
        self._first_left.wait()

    def stop(self) -> None:
        """Stop watching: the other ranks do not wait for what this rank still has to do. May be called again."""
        if not self._entered:
            return
        self._entered = False
        self._stop.set()
        for star in self._stars:
            star.tell({"kind": "hang-closed", "rank": self._rank})
        faulthandler.unregister(DUMP_SIGNAL)

    def report_into(self, folder: RunFolder) -> None:
        """Write the report of a hang into ``folder`` from now on; before that, it goes to standard error."""
        self.on_hang = partial(write_report, folder.path)
        self.advice = partial(resume_advice, folder.checkpoints)

    def state(self) -> RankState:
        """What this rank was doing when the clock last looked."""
        clock, progress = self._clock, self.progress
        return RankState(
            self._rank, self._own.node, progress.phase, progress.step, clock.standing_s, clock.bound_s,
            self._leaving or waits_for_others(),
        )  # fmt: skip

    def _run(self) -> None:
        while not self._stop.is_set():
            self._turn(LOOK_S)
            self._clock.look()
            if not self._stop.is_set():
                self._look(self._clock.now)

    def _turn(self, seconds: float) -> None:
        """Wait, and handle messages over the connections to the deputy."""
        deputy = self._stars[-1]
        if deputy.center == 0 or (not deputy.is_center and self._connections.hub.ended):
            self._stop.wait(seconds)
        elif deputy.is_center:
            self._connections.turn(seconds)
        else:
            self._connections.wait(seconds)
            for message in self._connections.hub.receive():
                self._hear(deputy, message)

    def _look(self, now: float) -> None:
        if self._watcher.reason_from_elsewhere() is not None:
            self._stop.set()
            return
        if now < self._patient_until:
            return
        own_state = self.state()
        suspicious = own_state.standing_s >= own_state.bound_s / 2
        if suspicious and now - self._asked_at >= self._every_s:
            self._asked_at = now
            self._ask(now, own_state)
        if not suspicious:
            for star in self._stars:
                star.asked_at = None
        if now - self._beat_at >= self._beat_s and self._rank != 0:
            self._beat_at = now
            self._stars[0].tell({"kind": "hang-state", "state": own_state.as_message()})
        for star in self._stars:
            if star.is_center:
                states = self._calls[star.center].look(now, own_state)
                if states is not None:
                    self._declare(star, states)

    def _ask(self, now: float, own_state: RankState) -> None:
        """Report a suspicion to rank 0, or to the deputy if rank 0 does not answer; act alone if neither does."""
        for star in self._stars:
            if star.is_center:
                self._calls[star.center].suspect(now)
                return
            star.ask(now, own_state)
            if star.silent_s(now) < self._silence_s / 2:
                return
        if own_state.over and self._stars[-1].silent_s(now) >= self._silence_s:
            self._end_alone(now, own_state)

    def _hear(self, star: Star, message: dict[str, Any]) -> None:
        """Handle a message of a star; also called in the watcher's thread."""
        if self._stop.is_set() or not str(message["kind"]).startswith("hang-"):
            return
        if star.is_center:
            self._calls[star.center].hear(self._clock.now, message)
        elif message["kind"] == "hang-call":
            star.asked_at = None
            star.tell({"kind": "hang-state", "state": self.state().as_message()})
        elif message["kind"] == "hang-gather":
            # The rank that asks has found a hang, and now writes the report instead of asking again.
            self._patient_until = self._clock.now + GATHER_S + WRITE_S + ON_ABORT_S
            star.tell(gather(self._own, self._members, message["inspect"]))
        elif message["kind"] == "hang-kill":
            self._kill(message["ranks"])
        elif message["kind"] == "hang-end":
            self._watcher.end_at_once(message["reason"], cause="hang", aloud=False)
        elif message["kind"] == "hang-closed" and star.center == 0:
            self._stop.set()
            self._first_left.set()

    def _declare(self, star: Star, states: list[RankState]) -> None:
        """Write the report and end all ranks, unless a silent rank answers after all."""
        report = self._calls[star.center].report(states, lambda: self._turn(0.1))
        if report is not None and not self._stop.is_set():
            self._end(star, report)

    def _end_alone(self, now: float, own_state: RankState) -> None:
        """End all ranks without rank 0 and its deputy, which do not answer, and without asking the others."""
        call = RollCall(Star(self._rank, self._rank, lambda message: None), self._members, self._own, 0.0, 1.0)
        call.suspect(now)
        silent = [self._members[star.center] for star in self._stars]
        states = [own_state, *(RankState(member.rank, member.node, silent=True) for member in silent)]
        report = call.report(states, lambda: None)
        if report is not None and not self._stop.is_set():
            self._end(self._stars[-1], report)

    def _end(self, star: Star, report: HangReport) -> None:
        written: list[Path] = []
        if self.on_hang is not None:
            write = self.on_hang
            within(WRITE_S, lambda: written.append(write(report)))
        if not written:
            print_line(report.as_text())
        stacks = "its stack is" if len(report.states) == 1 else "the stacks of the ranks are"
        unwritten = f"{stacks} above" if self.on_hang is None else "the run folder could not be written"
        where = f"{stacks} in {written[0]}" if written else unwritten
        reason = f"{report.finding()}; {where}; {self.advice()}"
        self.stands_in = self._rank != 0
        note = self._watcher.on_abort
        silent = [state.rank for state in report.states if state.silent]

        def note_and_kill(told: str) -> None:
            try:
                if note is not None:
                    note(told)
            finally:
                self._kill(silent)
                star.tell({"kind": "hang-kill", "ranks": silent})
                if star.center != 0:
                    star.tell({"kind": "hang-end", "reason": told})

        self._watcher.on_abort = note_and_kill
        self._watcher.end_at_once(reason, cause="hang")

    def _kill(self, ranks: list[int]) -> None:
        """Kill ranks of this node that can no longer end themselves, if the launcher does not do so at once."""
        if "HPCBENCH_SPAWNED" in os.environ or "mpi4py.MPI" in sys.modules:
            return
        for rank in ranks:
            member = self._members[rank]
            if member.machine == self._own.machine and rank != self._rank:
                with contextlib.suppress(OSError):
                    os.kill(member.pid, signal.SIGKILL)


class _Around:
    """The ranks of a group, numbered from ``center``, so that the others connect to that rank."""

    def __init__(self, group: Group, center: int) -> None:
        self._group = group
        self._center = center
        self.world_size = group.world_size
        self.rank = (group.rank - center) % group.world_size

    def addresses(self) -> list[str]:
        """Addresses of this host, best first."""
        return self._group.addresses()

    def broadcast_object(self, value: T) -> T:
        """The value of the rank in the center."""
        return self._group.broadcast_object(value, source=self._center)

    def barrier(self) -> None:
        """Wait for all ranks."""
        self._group.barrier()


def this_machine() -> str:
    """A name that is the same for all processes that see each other under the same process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115
    except OSError:
        return f"{this_node()} {os.getpid()}"
