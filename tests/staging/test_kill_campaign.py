"""A short campaign of kills, and that one would notice what is lost, wrong or left waiting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.staging import kill_campaign
from tests.staging.kill_campaign import Campaign, Kill, Trial, carry_out
from tests.staging.processes import ENVIRON, memory_folder

SEED = int(os.environ["HPCBENCH_SEED"])


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.usefixtures("mpiexec")
def test_nothing_is_lost_in_trials_of_this_seed(tmp_path: Path) -> None:
    with memory_folder(tmp_path) as folder:
        found = carry_out(10, SEED, 1, ENVIRON, folder, srun=False, show=False)
    assert found.problems == [], f"again: HPCBENCH_SEED={SEED}"
    assert found.trials == 10
    assert found.kills.total() >= 10


def first(launcher: str, source: str) -> int:
    """The number of the first trial of its kind."""
    trials = (Trial(1, number, srun=False) for number in range(1000))
    return next(trial.number for trial in trials if (trial.launcher, trial.source) == (launcher, source))


def test_a_trial_is_the_same_by_its_number() -> None:
    one, other = Trial(3, 14, srun=True), Trial(3, 14, srun=True)
    assert vars(one) == vars(other)
    drawn = [Trial(3, number, srun=True) for number in range(300)]
    assert {trial.launcher for trial in drawn} == {"none", "mpiexec", "srun"}
    assert {kill.who for trial in drawn for kill in trial.kills} == {"rank", "all", "launcher"}
    assert {trial.source for trial in drawn} == set(kill_campaign.SOURCES)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["lost", "wrong"])
def test_what_is_lost_or_wrong_is_counted(tmp_path: Path, damage: str) -> None:
    campaign = Campaign(tmp_path, 1, ENVIRON, srun=False)
    number = first("none", "none")
    name = max(campaign.expected["none"])
    if damage == "lost":
        campaign.expected["none"]["another"] = b"file"
    else:
        campaign.expected["none"][name] = b"other bytes"
    campaign.run(number)
    assert campaign.outcome.count(damage) >= 1
    assert all(f"(trial {number} of seed 1)" in problem for problem in campaign.outcome.problems)


def test_a_staging_that_stays_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kill_campaign, "HUNG_S", 0.5)
    monkeypatch.setattr(kill_campaign, "LAST_S", 0.5)
    stubborn = ["sh", "-c", "trap '' INT TERM; exec sleep 60"]  # as soon as it is started
    monkeypatch.setattr(kill_campaign, "PACED", stubborn)
    monkeypatch.setattr(kill_campaign, "PLAIN", stubborn)
    campaign, number = Campaign(tmp_path, 1, ENVIRON, srun=False), first("none", "none")
    monkeypatch.setattr(Kill, "drawn", lambda dice: Kill("launcher", kill_campaign.signal.SIGTERM, -0.3, 0.0))
    campaign.run(number)
    assert campaign.outcome.count("hung") >= 2
