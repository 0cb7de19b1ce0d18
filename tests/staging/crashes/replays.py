"""Replays what a command did to a disk that forgets what it was not told to keep, with a crash of the node anywhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.disk_model import Disk, Event, Recorder, State, Times, materialize
from tests.staging.crashes.calls import Folder
from tests.staging.crashes.judge import Fault, InThisProcess, Judge
from tests.staging.crashes.scenarios import Scenario


@dataclass
class Recording:
    """What a command did, from a state that the disk had."""

    before: Folder
    events: list[Event]
    first: int = 0
    """Crashes come behind this event at the earliest."""

    def disk(self) -> Disk:
        """The disk before the first event."""
        before = self.before
        return Disk(dict(before.names), dict(before.contents), dict(before.contents), [], dict(before.times),
                    dict(before.times))  # fmt: skip


def record(scenario: Scenario, place: Path, killed_at: Random | None = None) -> Recording:
    """Run the command in ``place``; with ``killed_at`` once more from what a kill at a drawn event leaves."""
    whole = recorded(scenario, place, Folder.of(place / "root"), [])
    if killed_at is None or scenario.what != "stage":
        return whole
    cut = killed_at.randrange(1, len(whole.events))
    return recorded(scenario, place, whole.before, whole.events[:cut])


def recorded(scenario: Scenario, place: Path, before: Folder, events: list[Event]) -> Recording:
    """Run the command where ``events`` have happened since ``before``."""
    root = place / "recorded"
    folder = before.copy()
    folder.follow(events)
    root.mkdir()
    state, times = folder.state()
    materialize(state, root, times)
    recorder = Recorder(root, disks=len(scenario.nodes) > 1)
    recorder.know({name: file for name, file in folder.names.items() if file is not None})
    with recorder.recording():
        scenario.perform(place, root.name)
    folder.follow(recorder.events)
    assert folder.state()[0] == Folder.of(root).state()[0], "the recorder has missed something"
    shutil.rmtree(root)
    return Recording(before, [*events, *recorder.events], len(events))


def crashes(recording: Recording, number: int, random: Random) -> Iterator[tuple[int, State, Times]]:
    """So many states that crashes may leave, drawn; each with how many events came before, and at most once."""
    disk, after = recording.disk(), len(recording.events) - recording.first
    seen = set()
    for count, event in enumerate(recording.events, 1):
        disk.apply(event)
        past = count - recording.first
        for _ in range(0 if past < 1 else past * number // after - (past - 1) * number // after):
            state, times = disk.crash(random)
            key = (frozenset(state.items()), frozenset(times.items()))
            if key not in seen:
                seen.add(key)
                yield count, state, times


def stops(
    scenario: Scenario, place: Path, recording: Recording, number: int | None, random: Random
) -> Iterator[tuple[str, list[Fault]]]:
    """What does not hold where the command ended behind ``number`` of its events, or any, with nothing lost: kills."""
    judge = Judge(scenario, place, InThisProcess(), crashed=False)
    counts = range(recording.first, len(recording.events) + 1)
    for count in counts if number is None else sorted(random.sample(counts, min(number, len(counts)))):
        folder, root = recording.before.copy(), place / "stopped"
        folder.follow(recording.events[:count])
        root.mkdir()
        materialize(folder.state()[0], root, folder.state()[1])
        yield f"event {count}", judge.faults(root)


def replays(
    scenario: Scenario, place: Path, recording: Recording, number: int, random: Random
) -> Iterator[tuple[str, list[Fault]]]:
    """What does not hold after crashes in a place that is prepared, each with the event that it came behind."""
    judge = Judge(scenario, place, InThisProcess(), crashed=True)
    for count, state, times in crashes(recording, number, random):
        root, event = place / "crashed", recording.events[count - 1]
        root.mkdir()
        materialize(state, root, times)
        faults = judge.faults(root, ended=count == len(recording.events))
        yield f"{event.kind} {event.path or event.file} (event {count})", faults
