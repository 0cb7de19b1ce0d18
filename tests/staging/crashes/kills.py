"""Kills a command at each of its calls that change the destination or wait for the disk, in turn."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from staging.bookkeeping import BOOKKEEPING
from tests.disk_model import Event
from tests.staging.crashes.calls import END, Call, Folder, read_calls, traced
from tests.staging.crashes.judge import Fault, InThisProcess, Judge, Processes
from tests.staging.crashes.scenarios import Scenario

TOKEN = re.compile(r"\.[0-9a-f]{14}\.part$")
ATTEMPTS = 3


@dataclass(frozen=True)
class Point:
    """A call to be killed at: it is not done any more. What is killed behind it is killed before the next."""

    call: Call
    kind: str
    """Whose file, and what is done to it."""
    path: str
    """What it is done to, without the part of temporary names that is drawn."""


def points_of(scenario: Scenario, place: Path) -> list[Point]:
    """All points of a command that is left alone, and its end."""
    root = place / "traced"
    shutil.copytree(place / "root", root)
    trace = place / "trace"
    folder, points = Folder.of(root), []
    done = traced(scenario.command(place, root.name), trace)
    assert done.returncode == 0, done.stderr
    calls = read_calls(trace)
    for call, event in folder.events(calls):
        points.append(Point(call, kind_of(call, event, folder), path_of(call, folder)))
    assert folder.state()[0] == Folder.of(root).state()[0], "the trace has not all that happened"
    shutil.rmtree(root)
    last = next(call for call in calls if call.syscall == END)
    # Several ranks are threads, which count for themselves: the same number is the same point.
    first = {(point.call.syscall, point.call.ordinal): point for point in reversed(points)}
    chosen = points if sum(scenario.ranks) == 1 else list(reversed(first.values()))
    return [*chosen, Point(last, "end", "")]


def kind_of(call: Call, event: Event, folder: Folder) -> str:
    """What the table calls it."""
    if event.kind in ("rmdir", "sync folder"):
        what = {"rmdir": "rmdir", "sync folder": "fsync of a folder"}[event.kind]
    else:
        what = {"openat": "create", "pwrite64": "write", "utimensat": "set time"}.get(
            call.syscall, call.syscall.removesuffix("at")
        )
    whose = "books" if BOOKKEEPING in path_of(call, folder).split("/") else "data"
    return f"{whose}: {what}"


def path_of(call: Call, folder: Folder) -> str:
    """What a call is about, below the root; empty where it is about nothing there."""
    return "" if call.syscall == END else TOKEN.sub("", folder.relative(call.path()) or "")


def chosen_points(points: list[Point], number: int | None, random: Random) -> list[Point]:
    """Of each kind the first, and others as drawn, ``number`` in all; every one with ``None``."""
    if number is None:
        return points
    chosen = []
    for kind in sorted({point.kind for point in points}):
        first, *others = [point for point in points if point.kind == kind]
        chosen += [first, *random.sample(others, min(number - 1, len(others)))]
    return chosen


def killed(scenario: Scenario, place: Path, point: Point) -> bool:
    """Run the command, and kill it at a point; ``root`` is what it leaves. Whether it was killed there."""
    shutil.rmtree(place / "killed", ignore_errors=True)
    shutil.copytree(place / "root", place / "killed")
    trace, syscall = place / "trace", point.call.syscall
    inject = f"inject={syscall}:signal=SIGKILL:when={point.call.ordinal}"
    if traced(scenario.command(place, "killed"), trace, "-e", inject).returncode != -signal.SIGKILL:
        return False
    last = [call for call in read_calls(trace) if call.result is None]
    if sum(scenario.ranks) > 1:
        return any(call.syscall == syscall for call in last)
    there = [(call.syscall, path_of(call, Folder(place / "killed"))) for call in last]
    return there == [(syscall, point.path)]


def kills(scenario: Scenario, place: Path, number: int | None, random: Random) -> Iterator[tuple[Point, list[Fault]]]:
    """What does not hold after a kill at each of the chosen points, in a place that is prepared.

    After the first kill of each kind the next commands are processes, as a user starts them; else functions of this
    one, which do the same in a tenth of the time.
    """
    kinds = set[str]()
    for point in chosen_points(points_of(scenario, place), number, random):
        judge = Judge(scenario, place, InThisProcess() if point.kind in kinds else Processes(), crashed=False)
        kinds.add(point.kind)
        try:
            hit = any(killed(scenario, place, point) for _ in range(ATTEMPTS))
        except subprocess.TimeoutExpired as error:
            yield point, [Fault("hung", str(error))]
            continue
        if hit:
            yield point, judge.faults(place / "killed")
        else:
            yield point, [Fault("missed", f"no kill at {point.call.syscall} {point.call.ordinal}")]
