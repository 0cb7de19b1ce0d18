"""After a crash of the machine at any instant the newest checkpoint that was declared complete is there, and whole."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hpcbench.results.checkpoint_files import complete
from hpcbench.train.checkpoint_io import Checkpoint, load, load_newest, save
from staging.errors import InputError
from tests.disk_model import Disk, Event, Recorder, State, materialize

SAVES = 4


def content(step: int) -> Checkpoint:
    """A checkpoint that says which one it is."""
    return Checkpoint({"w": torch.full((3,), float(step))}, {}, {}, {"epoch": 1, "step": step}, {"seed": 1})


@pytest.fixture(scope="module", params=[1, 2])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Saves that keep one or two."""
    return record(tmp_path_factory.mktemp("run"), request.param)


def record(root: Path, keep: int) -> list[Event]:
    """Saves, with a note of the step when each has returned. The last is at a step that has a checkpoint already."""
    recorder = Recorder(root)
    with recorder.recording():
        for step in (*range(1, SAVES + 1), SAVES):
            save(content(step), root / "checkpoints", keep)
            recorder.note(step)
    disk = Disk()
    for event in [*recorder.events, *(Event("sync folder", folder) for folder in ("", "checkpoints"))]:
        disk.apply(event)
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {"checkpoints": None, **found} == next(disk.crashes()), "the recorder has missed something"
    assert len(found) == 2 * keep
    return recorder.events


class Judge:
    """Looks at what crashes leave; a state that came before is not looked at again."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self.known: dict[tuple[tuple[str, bytes | None], ...], int | str] = {}
        self.states: list[State] = []

    def violations(self, events: Iterable[Event]) -> list[str]:
        """What is wrong after a crash behind each of the events."""
        disk, returned, found = Disk(), 0, []
        for event in events:
            disk.apply(event)
            returned = event.note or returned
            for state in disk.crashes():
                verdict = self.verdict(state)
                if isinstance(verdict, str):
                    found.append(f"after {event.kind} {event.path}: {verdict}")
                elif verdict < returned:
                    found.append(f"after {event.kind} {event.path}: step {verdict}, and {returned} was complete")
        return found

    def verdict(self, state: State) -> int | str:
        """The step of the newest checkpoint, 0 where there is none, or what is wrong."""
        key = tuple(sorted(state.items()))
        if key not in self.known:
            self.states.append(state)
            root = self.scratch / str(len(self.states))
            root.mkdir()
            materialize(state, root)
            self.known[key] = look(root / "checkpoints")
            shutil.rmtree(root)
        return self.known[key]


def look(folder: Path) -> int | str:
    """The step of the newest checkpoint of a folder, or what is wrong with one of those that are declared complete."""
    try:
        for path in folder.glob("*.json"):
            step = load(path.with_suffix(".pt")).model["w"][0].item()
            assert step == json.loads(path.read_text())["step"]
        found = load_newest(folder)
    except InputError as error:
        return str(error)
    return 0 if found is None else found.state["step"]


def test_after_every_crash_the_newest_complete_checkpoint_is_found(recorded: list[Event], tmp_path: Path) -> None:
    judge = Judge(tmp_path)
    assert judge.violations(recorded) == []
    assert len(judge.states) > 50
    assert set(judge.known.values()) == set(range(SAVES + 1)), "some crashes leave the one before"


@pytest.mark.slow
def test_the_proof_finds_each_sync_that_is_missing(tmp_path: Path) -> None:
    """Without any single one of them some crash costs the only checkpoint, or leaves a marker of what is not whole."""
    (tmp_path / "run").mkdir()
    recorded, judge = record(tmp_path / "run", keep=1), Judge(tmp_path)
    syncs = [number for number, event in enumerate(recorded) if event.kind in ("sync", "sync folder")]
    assert len(syncs) == 1 + 4 * (SAVES + 1) + SAVES, "folder made; file, name, marker, name; removed"
    for number in syncs:
        assert judge.violations(recorded[:number] + recorded[number + 1 :]), recorded[number]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "first", "second"), [("rename", ".pt", ".json"), ("unlink", ".json", ".pt")])
def test_the_order_of_file_and_marker_matters(
    kind: str, first: str, second: str, recorded: list[Event], tmp_path: Path
) -> None:
    """The marker comes last and goes first; the other way round is found to be wrong."""
    changes = [number for number, event in enumerate(recorded) if event.kind == kind]
    pairs = list(zip(changes[::2], changes[1::2], strict=True))
    assert pairs
    judge = Judge(tmp_path)
    for one, other in pairs:
        assert (recorded[one].to or recorded[one].path).endswith(first)
        assert (recorded[other].to or recorded[other].path).endswith(second)
        swapped = list(recorded)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        assert judge.violations(swapped)


def test_after_a_crash_checkpoints_go_on_and_what_was_left_behind_goes(recorded: list[Event], tmp_path: Path) -> None:
    judge = Judge(tmp_path)
    judge.violations(recorded)
    for number, state in enumerate(judge.states[::9]):
        root = tmp_path / f"next-{number}"
        root.mkdir()
        materialize(state, root)
        newest = save(content(99), root / "checkpoints", 1)
        assert sorted(path.name for path in newest.parent.iterdir()) == [newest.with_suffix(".json").name, newest.name]
        assert look(newest.parent) == 99


def test_the_recorder_sees_writes_that_were_not_synced(tmp_path: Path) -> None:
    """Of the model itself: a file that was only written may be gone, empty, cut off or whole."""
    recorder = Recorder(tmp_path)
    with recorder.recording():
        (tmp_path / "a").write_bytes(b"1234")
    disk = Disk()
    for event in recorder.events:
        disk.apply(event)
    assert list(disk.crashes()) == [{}, {"a": b""}, {"a": b"12"}, {"a": b"1234"}]
    disk.apply(replace(recorder.events[0], kind="sync"))
    assert list(disk.crashes()) == [{}, {"a": b"1234"}], "the name is not the file's"


def test_a_writer_that_is_killed_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """A process that only writes checkpoints, killed ten times wherever it is, and started again."""
    folder, newest = tmp_path / "checkpoints", 0
    for attempt in range(10):
        child = os.fork()
        if child == 0:
            step = newest
            while True:
                step += 1
                save(content(step), folder, 2)
        wait_for_more_than(newest, folder)
        time.sleep(0.0007 * attempt)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found = load_newest(folder)
        assert found is not None
        assert found.state["step"] > newest
        newest = found.state["step"]
    save(content(newest + 1), folder, 2)
    assert len(list(folder.iterdir())) == 4, "two files with their markers"


def wait_for_more_than(step: int, folder: Path) -> None:
    """Wait until there is a checkpoint of a later step."""
    deadline = time.monotonic() + 60
    while not any(int(path.stem.split("-")[3]) > step for path in complete(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.001)
