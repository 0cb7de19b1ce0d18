"""Every number on the page of a run, recomputed from the tables of its folder and not by the page's own code.

Only the form of numbers (``units``) is shared. A number that no check claims fails, so that a new one needs a check.
The shares of the bar of phases are among them; other plots have tests of their own.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from hpcbench.phase_names import MESSAGE_KINDS, STEP_PHASES
from hpcbench.results import units

from .page_bar import drawn_shares, expected_shares
from .page_meters import EVALUATION_J, STEP_J
from .page_quality import heading, metrics, references, tiles
from .page_reader import PageReader
from .page_tables import Claims, Tables
from .page_times import attempts, checkpoints, energy, phases, setup, staging, use, words_of
from .real_runs import COLD, STEPS, RealRuns

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.usefixtures("forked_processes")]

NAMES = (
    "fresh",
    "signal",
    "resumed",
    "killed_writing",
    "diverged",
    "spatial",
    "sharded",
    "simulated",
    "staged",
    "noise_scale",
    "mesh",
    "resumed_ranks",
    "reached",
    "reached_within",
    "reached_resumed",
    "signal_later",
    "diverged_later",
    "spatial_signal",
    "spatial_later",
    "sharded_signal",
    "sharded_later",
    "simulated_resumed",
    "spatial_resumed",
    "sharded_resumed",
    "metered",
    "metered_signal",
    "metered_resumed",
    "metered_ranks",
)
TICK_S = 0.02


DEEPCAM_NAMES = ("fresh", "signal", "resumed", "spatial", "simulated", "reached", "signal_later")
"""Of the other application, one of each kind: what differs is model, metrics and samples."""


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory: pytest.TempPathFactory, mpiexec: str) -> RealRuns:
    return RealRuns(tmp_path_factory.mktemp("real"), "cosmoflow")


@pytest.fixture(scope="module")
def deepcam_runs(tmp_path_factory: pytest.TempPathFactory, mpiexec: str) -> RealRuns:
    return RealRuns(tmp_path_factory.mktemp("deepcam"), "deepcam")


def recomputed(t: Tables) -> Claims:
    """Every text of the page that has a number, by its key."""
    claims: Claims = {}
    for part in (heading, tiles, metrics, phases, attempts, use, energy, checkpoints, staging, references, setup):
        claims |= part(t)
    claims |= {"loss/figcaption": f"One optimizer step takes {t.batch[0]} samples."} if len(t.steps) else {}
    return {key: text for key, text in claims.items() if re.search(r"[0-9]", text)}


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_the_page_follows_from_the_tables(real_runs: RealRuns, name: str) -> None:
    check_numbers(real_runs[name].folder)


@pytest.mark.parametrize("name", DEEPCAM_NAMES)
def test_every_number_of_a_page_of_deepcam_follows_from_the_tables(deepcam_runs: RealRuns, name: str) -> None:
    check_numbers(deepcam_runs[name].folder)


def check_numbers(folder: Path) -> None:
    """All texts with digits on the page of a run are those that its tables give."""
    t = Tables(folder)
    claims, shown = recomputed(t), PageReader(t.folder / "report.html").numbers()
    described = {*words_of(t.environment), *words_of(t.system)}
    left = {key for key, text in shown.items() if key.startswith("how-it-was-run/") and text in described}
    wrong = {key: (shown.get(key), claims.get(key)) for key in (shown.keys() - left) | claims.keys()}
    assert {key: pair for key, pair in wrong.items() if pair[0] != pair[1]} == {}
    assert drawn_shares(folder) == expected_shares(t)


@pytest.mark.parametrize("name", ["simulated_resumed", "spatial_resumed", "sharded_resumed"])
def test_the_ranks_of_a_resumed_run_have_the_sums_over_its_attempts(real_runs: RealRuns, name: str) -> None:
    t = Tables(real_runs[name].folder)
    ended = [each["last_step"] - each["first_step"] for each in t.attempts]
    assert (len(ended), sum(ended)) == (2, STEPS)
    warm = sum(max(0, steps - COLD) for steps in ended)
    assert t.ranks["steps"].tolist() == [warm] * t.world
    assert t.ranks["samples"].tolist() == [warm * t.batch[0]] * t.world
    for phase in ("init", "evaluation", "checkpoint", *STEP_PHASES):
        both = sum(each["phases_s"][phase] for each in t.attempts)
        assert t.ranks[f"run_{phase}_s"][0] == pytest.approx(both, rel=1e-6, abs=1e-6), phase
        assert phase not in STEP_PHASES or (t.ranks[f"{phase}_s"] <= t.ranks[f"run_{phase}_s"] + 1e-6).all(), phase
    kinds = sum(t.ranks[f"run_{kind}_s"] for kind in MESSAGE_KINDS)
    assert kinds.tolist() == pytest.approx(t.ranks["run_communication_s"].tolist(), abs=1e-6)


@pytest.mark.parametrize("name", ["fresh", "resumed"])
def test_attempts_and_gaps_lie_within_what_an_observer_saw(real_runs: RealRuns, name: str) -> None:
    seen = real_runs[name]
    t = Tables(seen.folder)
    times = [moment for each in t.attempts for moment in (each["started"], each["ended"])]
    times = [seen.began, *times, seen.ended]
    assert all(after - before > -TICK_S for before, after in pairwise(times))


def test_the_page_of_a_resumed_run_names_every_ending(real_runs: RealRuns) -> None:
    page = PageReader(real_runs["resumed"].folder / "report.html").texts
    ended = [page[f"attempts-table/{number}/how it ended"] for number in (1, 2, 3)]
    assert ended == ["signal", "killed", "all epochs trained"]
    assert page["how-fast/note"] == "What an attempt that was killed did after its last checkpoint counts as a gap."


def test_the_page_of_a_run_that_a_signal_ended_says_how_to_continue(real_runs: RealRuns) -> None:
    page = PageReader(real_runs["signal"].folder / "report.html").texts
    assert page["/verdict"].startswith("SIGTERM asked it to end")
    assert page["/verdict"].endswith("To continue, resume with --resume.")
    assert page["tiles/epochs/value"] == "0"


@pytest.mark.parametrize("name", ["metered", "metered_signal", "metered_resumed", "metered_ranks", "spatial_later"])
def test_joules_of_the_page_are_those_of_its_steps_and_evaluations(real_runs: RealRuns, name: str) -> None:
    """And not what the node drew beside the clock, nor in steps that a kill has lost."""
    t = Tables(real_runs[name].folder)
    joules = STEP_J * len(t.steps) + EVALUATION_J * len(t.epochs)
    shown = PageReader(t.folder / "report.html").texts["how-it-was-run/energy"]
    assert shown.startswith(f"{units.prefixed(joules, 'J')} (pm_counters: node of 1 node")


@pytest.mark.parametrize(("name", "shown"), [
    ("metered", "25.0 % of the time on the clock"),
    ("metered_ranks", "50.0 % of the time on the clock, the median over ranks; least 25.0 %, rank 0 on "),
    ("spatial_later", "50.0 % of the time on the clock, the median over ranks; least 25.0 %, rank 0 on "),
])  # fmt: skip
def test_the_page_shows_how_busy_the_driver_said_the_accelerators_were(
    real_runs: RealRuns, name: str, shown: str
) -> None:
    assert PageReader(real_runs[name].folder / "report.html").texts["use/accelerator busy"].startswith(shown)


def test_the_runs_ended_where_their_names_say(real_runs: RealRuns) -> None:
    """So that no check is empty: within the first epoch of six steps or after it, at the target or before."""
    ended = {name: Tables(real_runs[name].folder) for name in NAMES}
    assert {name for name, t in ended.items() if t.reached} == {"reached", "reached_within", "reached_resumed"}
    assert [ended[f"reached{kind}"].trained_epochs for kind in ("_within", "_resumed")] == ["0.5", "1"]
    later = [name for name in NAMES if name.endswith("_later")]
    assert all(ended[name].aborted and ended[name].trained_epochs == "1" for name in later)
    within = [name for name in NAMES if ended[name].aborted and name not in later]
    assert all(ended[name].epochs.empty for name in within)
    assert len(ended["metered_resumed"].attempts) == 3


def test_what_was_not_measured_is_said_and_never_zero(real_runs: RealRuns) -> None:
    page = PageReader(real_runs["sharded"].folder / "report.html").texts
    assert page["tiles/compute rate/note"] == "peak not measured"
    assert page["use/peak FLOP/s"] == "not measured; --measure.probe true measures it before the clock starts"
    assert page["use/FLOP/s utilization"].startswith("not known")
    aborted = PageReader(real_runs["diverged"].folder / "report.html").texts
    assert "tiles/compute rate/value" not in aborted
    assert "how-it-was-run/forward pass" not in aborted
    assert aborted["use/model FLOP/s"].startswith("not known")
    assert aborted["use/processors busy"].endswith("in the steps after the warm-up"), "all ranks met the loss together"
    assert aborted["checkpoints/checkpoints"] == "none"
