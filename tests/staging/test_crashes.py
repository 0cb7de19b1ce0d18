"""Stagings are killed at any instant, and their nodes crash: nothing is lost, and the next command ends well.

Also that the campaign (``python -m tests.staging.crashes``) would find what breaks that: each planted fault is found.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

import staging.landing.file_sink
import staging.ledger.jsonl
import staging.ledger.manifest
from tests.staging.crashes import judge, kills
from tests.staging.crashes.calls import Call, lacks_strace
from tests.staging.crashes.judge import Fault
from tests.staging.crashes.kills import Point, points_of
from tests.staging.crashes.replays import record, replays, stops
from tests.staging.crashes.scenarios import SCENARIOS, Scenario
from tests.staging.processes import memory_folder

EACH = pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder for a scenario, in memory where it can be."""
    with memory_folder(tmp_path) as folder:
        yield folder / "place"


@pytest.fixture
def strace() -> None:
    """Skips where processes can't be killed at their calls."""
    if lacking := lacks_strace():
        unavailable(lacking)


def unavailable(reason: str) -> None:
    """Skip; where tests are run for a merge (``CI``) by root, fail: nobody would notice a skip there."""
    if os.environ.get("CI") and os.geteuid() == 0:
        pytest.fail(f"CI is set, and processes cannot be killed at their calls: {reason}", pytrace=False)
    pytest.skip(f"needs strace that may trace processes: {reason}")


def prepared(name: str, place: Path) -> Scenario:
    """The scenario of a name, ready in ``place``."""
    scenario = next(each for each in SCENARIOS if each.name == name)
    scenario.prepare(place)
    return scenario


def told(faults_by_place: Iterator[tuple[str, list[Fault]]]) -> list[str]:
    """What did not hold, and where."""
    return [f"{where}: {fault.column}: {fault.text}" for where, faults in faults_by_place for fault in faults]


# -- what holds -------------------------------------------------------------------------------------------------------


@EACH
def test_nothing_is_lost_by_a_kill_behind_an_operation(name: str, place: Path) -> None:
    scenario, random = prepared(name, place), Random(1)
    assert told(stops(scenario, place, record(scenario, place), 10, random)) == []


@pytest.mark.slow
@EACH
def test_nothing_is_lost_by_a_crash_of_the_node(name: str, place: Path) -> None:
    """Anything that was not synced is dropped or torn; the last crash comes after the end, when all must be there."""
    scenario, random = prepared(name, place), Random(2)
    assert told(replays(scenario, place, record(scenario, place), 15, random)) == []


def test_nothing_is_lost_by_a_crash_after_a_kill(place: Path) -> None:
    scenario, random = prepared("new", place), Random(3)
    for _ in range(3):
        assert told(replays(scenario, place, record(scenario, place, random), 10, random)) == []


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
def test_a_kill_at_the_first_write_of_the_manifest_is_continued_from(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves an empty file, which is no manifest: both ``stage`` and ``--clean`` work."""
    scenario = prepared("new", place)

    def first_write(scenario: Scenario, place: Path) -> list[Point]:
        points = [point for point in points_of(scenario, place) if point.path == "node0/.staging/manifest.jsonl"]
        return [next(point for point in points if point.kind == "books: write")]

    monkeypatch.setattr(kills, "points_of", first_write)
    (found,) = kills.kills(scenario, place, None, Random(0))
    assert found[1] == []


@pytest.mark.slow
@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("name", ["new", "clean", "reshuffle"])
def test_nothing_is_lost_by_kills_at_calls_of_each_kind(name: str, place: Path) -> None:
    scenario = prepared(name, place)
    kinds, faults = Counter[str](), list[Any]()
    for point, found in kills.kills(scenario, place, 2, Random(4)):
        if sum(scenario.ranks) > 1 and [fault.column for fault in found] == ["missed"]:
            continue  # ranks need not make their calls in the order of the run that was counted
        kinds[point.kind] += 1
        faults += [(point, fault) for fault in found]
    assert faults == []
    needed = {
        "new": {"write", "create", "fsync", "mkdir"}, "clean": {"unlink", "rmdir"}, "reshuffle": {"rename", "write"},
    }  # fmt: skip
    assert {f"books: {kind}" for kind in needed[name]} <= set(kinds)
    assert max(kinds.values()) == 2


@pytest.mark.parametrize("name", ["new", "shared files"])
def test_a_command_that_was_not_killed_is_no_kill(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one rank or of several: it is told as missed, and what it left is not judged."""
    scenario = next(each for each in SCENARIOS if each.name == name)
    point = Point(Call("unlinkat", 1_000_000, (), 0), "books: unlink", "node0/.staging/lock")
    monkeypatch.setattr(kills, "points_of", lambda scenario, place: [point])
    monkeypatch.setattr(kills, "killed", lambda scenario, place, point: False)
    ((_, faults),) = kills.kills(scenario, place, None, Random(0))
    assert [fault.column for fault in faults] == ["missed"]


# -- what would be found ----------------------------------------------------------------------------------------------


@contextmanager
def no_header_on_disk() -> Iterator[None]:
    """Nobody waits for the disk to have the header of a book."""
    real = staging.ledger.jsonl.start_file

    def start(*words: Any) -> Any:
        with patch.object(os, "fsync", lambda descriptor: None):
            return real(*words)

    with patch("staging.ledger.manifest.start_file", start), patch("staging.ledger.journal.start_file", start):
        yield


@contextmanager
def nobody_waits_for(what: str, module: str) -> Iterator[None]:
    """Nobody waits for the disk to have lines of the manifest, or of the journal, with a word."""
    real = staging.ledger.jsonl.append_lines

    def append(path: Path, lines: Iterable[str], durable: bool = False) -> None:
        texts = list(lines)
        real(path, texts, durable=durable and not any(what in text for text in texts))

    with patch(f"{module}.append_lines", append):
        yield


CRASHES: dict[str, tuple[str, Any, str]] = {
    "header": ("new", no_header_on_disk(), "wrong"),
    "folder of the books": ("new", patch("staging.ledger.destination_lock.sync_folder"), "wrong"),
    "bytes": ("new", patch("staging.ledger.durable_batch.sync_filesystem"), "lost"),
    "names": ("new", nobody_waits_for("crc32c", "staging.ledger.manifest"), "lost"),
    "start": ("new", nobody_waits_for('"start"', "staging.ledger.journal"), "wrong"),
    "end": ("new", nobody_waits_for('"end"', "staging.ledger.journal"), "refused"),
    "old line": ("changed", patch("staging.stage.Staging.make_way"), "lost"),
    "removed by a re-shuffle": ("reshuffle", patch("staging.reshuffle.sync_filesystem"), "wrong"),
    "removed by an update": ("update", patch("staging.present.sync_filesystem"), "wrong"),
    "removed by --clean": ("clean", patch("staging.ledger.clean.sync_filesystem"), "wrong"),
}
"""What the disk does not have in time: the scenario, the fault to plant, and as what it is found."""


@pytest.mark.slow
@pytest.mark.parametrize("what", CRASHES)
def test_what_the_disk_does_not_have_in_time_is_found(what: str, place: Path) -> None:
    name, fault, column = CRASHES[what]
    scenario = prepared(name, place)
    with fault:
        recording = record(scenario, place)
    rounds = (replays(scenario, place, recording, 60, Random(seed)) for seed in range(12))
    found = (fault for _, faults in chain.from_iterable(rounds) for fault in faults)
    assert any(fault.column == column for fault in found)


KILLS: dict[str, tuple[str, Any, str]] = {
    "an empty manifest counts": ("new", patch("staging.ledger.manifest.is_begun", lambda path: True), "refused"),
    "a name before it is whole": (
        "new", patch.object(staging.landing.file_sink.FileSinkMaker, "_temporary", lambda maker, base: base), "lost",
    ),
    "unfinished files stay": ("new", patch("staging.stage.remove_unfinished", lambda folder: 0), "wrong"),
}  # fmt: skip
"""What a kill would find: the scenario, the fault to plant, and as what it is found."""


@pytest.mark.slow
@pytest.mark.parametrize("what", KILLS)
def test_what_does_not_hold_after_a_kill_is_found(what: str, place: Path) -> None:
    name, fault, column = KILLS[what]
    scenario = prepared(name, place)
    with fault:
        found = [
            one for _, faults in stops(scenario, place, record(scenario, place), None, Random(0)) for one in faults
        ]
    assert any(fault.column == column for fault in found)


def test_a_file_that_is_named_and_not_as_it_landed_is_found(place: Path) -> None:
    scenario = prepared("new", place)

    def columns(name: str, data: bytes | None) -> set[str]:
        scenario.stage(place, "staged")
        (place / "staged/node0" / name).unlink()
        if data is not None:
            (place / "staged/node0" / name).write_bytes(data)
        looked = judge.Judge(scenario, place, judge.InThisProcess(), crashed=False)
        return {fault.column for fault in looked.faults(place / "staged", ended=True)}

    assert columns("train/c.bin", b"half") == {"lost"}
    assert columns("a.bin", None) == {"lost"}
    assert columns(".staging/lock", b"") == set()


def test_a_command_that_does_not_end_is_found(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = prepared("new", place)
    recording = record(scenario, place)
    monkeypatch.setattr(judge, "HUNG_S", 0.2)
    monkeypatch.setattr("staging.stage.lock_destination", lambda *words: signal.pause())
    _, faults = next(stops(scenario, place, recording, 1, Random(0)))
    assert [fault.column for fault in faults] == ["hung"]


@pytest.mark.parametrize(
    ("ci", "user", "outcome"), [("true", 0, "Failed"), ("", 0, "Skipped"), ("true", 1000, "Skipped")]
)
def test_strace_that_lacks_is_a_failure_where_tests_are_run_for_a_merge(
    ci: str, user: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(BaseException, match="strace is not installed") as caught:
        unavailable("strace is not installed")
    assert type(caught.value).__name__ == outcome
