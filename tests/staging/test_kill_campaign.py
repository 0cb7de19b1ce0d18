"""A short campaign of kills, and that one would notice what is lost, wrong, left waiting or slow to end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from staging.landing.transforms import BUILT_IN
from tests.staging import kill_campaign
from tests.staging.kill_campaign import Campaign, Kill, Outcome, Trial, carry_out
from tests.staging.made_sources import TRANSFORMS
from tests.staging.processes import ENVIRON, memory_folder

SEED = int(os.environ["HPCBENCH_SEED"])
BUSY_END_BOUND_S = 15.0
"""Far above the second that is promised: other tests of the same session keep the cores busy."""
RANKS_THAT_LINGER = """
import json, os, sys, time
from pathlib import Path
books = Path(sys.argv[2].format(node="node0"), ".staging")
books.mkdir(parents=True, exist_ok=True)
one = os.fork()
if not one:
    time.sleep(60)
if not (other := os.fork()):
    while b") Z" not in Path(f"/proc/{one}/stat").read_bytes():
        time.sleep(0.01)
    time.sleep(0.5)
    os._exit(0)
with (books / "journal.jsonl").open("a") as journal:
    journal.write("".join(json.dumps({"event": "start", "pid": pid}) + "\\n" for pid in sorted([one, other])))
os.waitpid(other, 0)
"""
"""Two ranks; when the first one dies, the other takes half a second to end."""


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.usefixtures("mpiexec")
def test_nothing_is_lost_in_trials_of_this_seed(tmp_path: Path) -> None:
    with memory_folder(tmp_path) as folder:
        found = carry_out(
            10, SEED, 1, ENVIRON, folder, srun=False, end_bound_s=BUSY_END_BOUND_S, show=False
        )  # fmt: skip
    assert found.problems == [], f"again: HPCBENCH_SEED={SEED}"
    assert found.trials == 10
    assert found.kills.total() >= 10


def first(launcher: str, source: str) -> int:
    """The number of the first trial of its kind."""
    trials = (Trial(1, number, srun=False) for number in range(1000))
    return next(trial.number for trial in trials if (trial.launcher, trial.source) == (launcher, source))


def test_every_transform_of_staging_is_in_a_trial() -> None:
    steps = {step.partition(":")[0] for transform in TRANSFORMS.values() for step in transform.split("+")}
    assert set(BUILT_IN) <= steps
    assert any("+" in transform for transform in TRANSFORMS.values())
    trial = next(trial for trial in (Trial(1, number, srun=False) for number in range(1000)) if trial.source == "plain")
    words = trial.command(["stage"], Path("from"), Path("to"))
    assert [words[at + 1] for at, word in enumerate(words) if word == "--plain"] == ["auto", "extra/*"]


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


@pytest.mark.parametrize(("bound_s", "is_slow"), [(0.5, True), (20.0, False)])
def test_ranks_that_are_slow_to_end_are_counted(
    bound_s: float, is_slow: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kill_campaign, "PACED", [sys.executable, "-c", RANKS_THAT_LINGER])
    monkeypatch.setattr(kill_campaign, "PLAIN", ["true"])
    monkeypatch.setattr(Kill, "drawn", lambda dice: Kill("rank", kill_campaign.signal.SIGKILL, 0.0, 0.0))
    campaign, number = Campaign(tmp_path, 1, ENVIRON, srun=False, end_bound_s=bound_s), first("none", "none")
    campaign.run(number)
    outcome = campaign.outcome
    assert min(outcome.ends_s) >= 0.5
    assert len(outcome.launcher_ends_s) == len(outcome.ends_s)
    assert outcome.as_dict()["launcher_end_longest_s"] >= min(outcome.ends_s)
    assert outcome.count("slow") == outcome.as_dict()["slow"] == (len(outcome.ends_s) if is_slow else 0)
    if is_slow:
        assert f"s after a rank was killed (trial {number} of seed 1)" in outcome.problems[0]


def test_a_campaign_with_a_problem_ends_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bounds: list[float] = []

    def outcome_of_bound(*_: object, end_bound_s: float, **__: object) -> Outcome:
        bounds.append(end_bound_s)
        return Outcome(problems=["slow: it took 2.00 s"] if end_bound_s == 1 else [])

    monkeypatch.setattr(kill_campaign, "carry_out", outcome_of_bound)
    for words, code in (([], 1), (["--end-bound-s", "5"], 0)):
        monkeypatch.setattr(sys, "argv", ["kill_campaign", "--seed", "1", *words])
        assert kill_campaign.main() == code
        assert f'"slow": {code}' in capsys.readouterr().out
    assert bounds == [1, 5]
