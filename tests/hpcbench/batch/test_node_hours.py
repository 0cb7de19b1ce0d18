"""What a run has used, from the marks of its scripts, its scheduler's accounting and its training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch import node_hours
from hpcbench.batch.holds import Hold, stem, write_hold
from hpcbench.batch.node_hours import total_words, used
from hpcbench.batch.scheduler import Reply
from hpcbench.batch.schedulers import SCHEDULERS
from hpcbench.results.attempts import Attempt, Attempts

HOUR = 3600.0
BEGAN = 1.7e9


def begun(folder: Path, number: int, hours: float, ended: float | None) -> None:
    """An attempt on two nodes that began, and perhaps ended, so many hours after the first one."""
    write_hold(folder, Hold("17", number, "slurm", "", 2, 0, "node1", BEGAN + hours * HOUR), number)
    if ended is not None:
        stem(folder, number).with_suffix(".end").write_text(f"{BEGAN + ended * HOUR:.0f} 138\n")


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> list[Reply]:
    """What the accounting answers."""
    answers = [Reply(1, "", "Slurm accounting storage is disabled")]
    monkeypatch.setattr(node_hours, "ask", lambda command: answers[-1])
    return answers


def test_attempts_that_ended_are_known_and_killed_ones_as_far_as_anybody_knows(
    accounts: list[Reply], tmp_path: Path
) -> None:
    assert used(tmp_path).words == "-"
    begun(tmp_path, 1, 0.0, 1.0)
    assert (used(tmp_path).total, used(tmp_path).at_least) == (2.0, False)
    begun(tmp_path, 2, 3.0, None)
    assert used(tmp_path).words == "at least 2.00"
    assert used(tmp_path).attempts[1].node_hours is None
    Attempts([Attempt(BEGAN + 3.1 * HOUR, BEGAN + 3.5 * HOUR, 0, 9)]).write(tmp_path)
    assert used(tmp_path).words == "at least 3.00"
    accounts.append(Reply(0, "2023-11-14T22:13:20|3600\nUnknown|0\n"))
    begun(tmp_path, 3, 4.0, 4.5)
    assert used(tmp_path).attempts[1].at_least, "the accounting has another start of the job"
    assert used(tmp_path).total == 4.0


@pytest.mark.parametrize("time_format", ["relative", "%s", "%d.%m.%y %T", "standard"])
def test_the_accounting_is_read_whatever_format_of_times_the_user_prefers(
    time_format: str, programs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sacct`` obeys ``SLURM_TIME_FORMAT``."""
    programs("sacct", "")
    (programs.folder / "sacct").write_text(
        """#!/bin/bash
        case $SLURM_TIME_FORMAT in
        relative) echo '22:13:20|3600' ;;
        %s) echo '1700000000|3600' ;;
        standard) echo '2023-11-14T22:13:20|3600' ;;
        *) echo '14.11.23 22:13:20|3600' ;;
        esac
        """
    )
    monkeypatch.setenv("SLURM_TIME_FORMAT", time_format)
    begun(tmp_path, 1, 0.0, None)
    assert used(tmp_path).words == "2.00"


@pytest.mark.parametrize("start", ["22:13:20", "1700000000", "Unknown", "Tue T 14:00", "2023-14-11T22:13:20"])
def test_a_start_in_no_known_format_is_no_start(start: str) -> None:
    assert SCHEDULERS["slurm"].elapsed_s("17", lambda command: Reply(0, f"{start}|3600\n")) == []


@pytest.mark.parametrize("name", ["pbs", "lsf"])
def test_a_job_that_was_started_again_under_its_number_counts_each_start_by_itself(
    name: str, accounts: list[Reply], tmp_path: Path
) -> None:
    """The scheduler tells only how long the last start lasted; a node ended the first one after five hours."""
    accounts.append(Reply(0, ELAPSED[name]))
    for number, began in ((1, 0.0), (2, 6.0)):
        write_hold(tmp_path, Hold("17", 1, name, "", 4, 0, f"node{number}", BEGAN + began * HOUR), number)
    first, second = used(tmp_path).attempts
    assert (first.seconds, first.at_least) == (None, True)
    assert (second.seconds, second.at_least) == (3723.0, False)
    Attempts([Attempt(BEGAN, BEGAN + 4.9 * HOUR, 0, 9)]).write(tmp_path)
    first = used(tmp_path).attempts[0]
    assert first.at_least
    assert first.node_hours == pytest.approx(4 * 4.9)
    assert used(tmp_path).words == "at least 23.7"


def test_an_attempt_that_runs_lasts_until_this_moment(accounts: list[Reply], tmp_path: Path) -> None:
    begun(tmp_path, 1, 0.0, None)
    hours = used(tmp_path, running=True)
    assert hours.total is not None
    assert hours.total > 2.0
    assert not hours.at_least


def test_unknown_is_said_and_no_zero(accounts: list[Reply], tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    begun(folders[0], 1, 0.0, None)
    assert used(folders[0]).words == "unknown"
    begun(folders[1], 1, 0.0, 2.0)
    assert total_words(folders) == "node-hours used: at least 4.00 (1 run unknown), in 2 attempts of 2 runs"
    assert total_words(folders[2:]) == ""


def test_a_damaged_folder_does_not_keep_the_others(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        begun(folder, 1, 0.0, 1.0)
    stem(folders[0], 1).with_suffix(".json").write_text("{")
    assert total_words(folders) == "node-hours used: at least 2.00 (1 run unknown), in 1 attempt of 2 runs"
    assert total_words(folders[:1]) == "node-hours used: unknown (1 run unknown), in 0 attempts of 1 run"


def test_the_total_of_several_runs_by_attempts(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        begun(folder, 1, 0, 1.0)
    begun(folders[0], 2, 2.0, 2.5)
    assert total_words(folders) == ("node-hours used: 5.00, in 3 attempts of 2 runs (attempt 1 4.00, attempt 2 1.00)")
    begun(folders[0], 3, 3.0, None)
    assert " ".join(total_words(folders).split()).endswith("(attempt 1 4.00, attempt 2 1.00, attempt 3 unknown)")
    for number in range(4, 11):
        begun(folders[1], number, number, number + 0.25)
    assert all(len(line) <= 100 for line in total_words(folders).splitlines())


ELAPSED = {
    "pbs": '{"Jobs": {"17.server": {"resources_used": {"walltime": "01:02:03"}}}}',
    "lsf": "3723 second(s)\n",
    "flux": "3723.0\n",
}


@pytest.mark.parametrize("name", ELAPSED)
def test_how_long_a_job_lasted_by_its_scheduler(name: str) -> None:
    assert SCHEDULERS[name].elapsed_s("17", lambda command: Reply(0, ELAPSED[name])) == [(None, 3723.0)]
    assert SCHEDULERS[name].elapsed_s("17", lambda command: Reply(1, "", "unknown job")) == []
