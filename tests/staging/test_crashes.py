"""Stagings that are killed at their calls, and whose nodes crash; ``python -m tests.staging.crashes`` does all of it.

Needs strace, with which a command is killed at a call, and its calls are recorded.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace

import pytest

from tests.staging.crashes.calls import has_strace
from tests.staging.crashes.judge import InThisProcess, Judge
from tests.staging.crashes.kills import kills
from tests.staging.crashes.replays import Recording, record, replays
from tests.staging.crashes.scenarios import SCENARIOS, Scenario, place_for

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
TWO_OF_EACH = 2


@pytest.fixture(scope="module")
def strace() -> None:
    """Skip where calls can't be traced."""
    if not has_strace():
        pytest.skip("needs strace that may trace processes and change their calls")


def found(scenario: Scenario, recording: Recording, place: object, states: int) -> list[str]:
    """What did not hold after crashes."""
    dice = random.Random(1)
    all_of = replays(scenario, place, recording, states, dice)  # type: ignore[arg-type]
    return [f"behind {where}: {fault.column}: {fault.text}" for where, faults in all_of for fault in faults]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new", "clean", "reshuffle"])
def test_killed_at_two_points_of_each_kind(name: str, strace: None) -> None:
    scenario, points = BY_NAME[name], 0
    with place_for(scenario) as place:
        for point, faults in kills(scenario, place, TWO_OF_EACH, random.Random(1)):
            assert faults == [], f"killed at {point}"
            points += 1
    assert points >= 10


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_crashed_anywhere(name: str, strace: None) -> None:
    scenario, dice = BY_NAME[name], random.Random(1)
    with place_for(scenario) as place:
        assert found(scenario, record(scenario, place), place, 80) == []
        if scenario.what == "stage":
            assert found(scenario, record(scenario, place, dice), place, 40) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"), [("new", "sync all"), ("new", "sync"), ("new", "sync folder"), ("clean", "sync all")]
)
def test_a_sync_that_is_left_out_is_found(name: str, kind: str, strace: None) -> None:
    """Each of them is needed, and a staging without it would not come through."""
    scenario = BY_NAME[name]
    with place_for(scenario) as place:
        recording = record(scenario, place)
        without = [event for event in recording.events if event.kind != kind]
        assert len(without) < len(recording.events)
        assert found(scenario, replace(recording, events=without), place, 300) != []


def test_a_file_that_is_named_and_not_whole_is_found() -> None:
    scenario = BY_NAME["new"]
    with place_for(scenario) as place:
        judge = Judge(scenario, place, InThisProcess(), crashed=False)

        scenario.stage(place, "killed")
        begun = b"\n".join((place / "killed/node0/.staging/journal.jsonl").read_bytes().splitlines()[:2]) + b"\n"

        def faults_of(spoil: str, data: bytes | None) -> set[str]:
            shutil.rmtree(place / "killed", ignore_errors=True)
            scenario.stage(place, "killed")
            path = place / "killed" / "node0" / spoil
            path.unlink()
            if data is not None:
                path.write_bytes(data)
            return {fault.column for fault in judge.faults(place / "killed", ended=True)}

        assert faults_of("train/c.bin", b"half") == {"lost"}
        assert "lost" in faults_of("a.bin", None)
        assert "stuck" in faults_of(".staging/journal.jsonl", begun)
        shutil.rmtree(place / "killed", ignore_errors=True)
        scenario.stage(place, "killed")
        assert judge.faults(place / "killed", ended=True) == []
