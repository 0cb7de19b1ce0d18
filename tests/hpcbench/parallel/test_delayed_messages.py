"""An injected delay shows in the right line: a slow rank as waiting of the other, a slow transfer as its kind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hpcbench.parallel.test_ranks import run_program

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.usefixtures("forked_processes")]

PROGRAM = Path(__file__).with_name("programs") / "delayed_messages.py"
CASES = [
    "gradients 1", "halo 0", "halo 1", "batch_norm 0", "batch_norm 1", "sharding 0", "sharding 1", "losses 0",
    "norms 0",
]  # fmt: skip
"""Kind of message, and the pass in which the delay is: 0 forward, 1 backward."""
Figures = dict[str, Any]


@pytest.fixture(scope="module")
def rank_figures(mpiexec: str) -> list[dict[str, Figures]]:
    """Both ranks, each with the figures of a step of every case."""
    return run_program(mpiexec, "-n", 2, sys.executable, PROGRAM, timeout_s=400)


def more(rank: dict[str, Figures], case: str, group: str, name: str) -> float:
    """Seconds by which a step with the delay has more of a figure than one without."""
    return float(rank[case][group][name] - rank[f"{kind_of(case)} none"][group][name])


def kind_of(case: str) -> str:
    return case.split(maxsplit=1)[0]


def kind_counted(case: str) -> str:
    """The kind as which the messages of a case count."""
    return {"norms": "sharding", "apart": "gradients"}.get(kind_of(case), kind_of(case))


@pytest.mark.parametrize("case", CASES)
def test_a_slow_rank_is_waiting_of_the_other(rank_figures: list[dict[str, Figures]], case: str) -> None:
    quick, slow = rank_figures
    delay = slow[f"{case} rank"]["slept_s"]
    assert delay >= 0.8
    assert more(quick, f"{case} rank", "waiting", kind_counted(case)) == pytest.approx(delay, rel=0.05)
    assert more(quick, f"{case} rank", "phases", "waiting") == pytest.approx(delay, rel=0.05)
    assert more(quick, f"{case} rank", "transfer", kind_counted(case)) == pytest.approx(0, abs=0.05 * delay)
    assert more(slow, f"{case} rank", "phases", "waiting") == pytest.approx(0, abs=0.05 * delay)
    assert more(slow, f"{case} rank", "phases", "compute") == pytest.approx(delay, rel=0.05)


@pytest.mark.parametrize("case", CASES)
def test_a_slow_transfer_is_communication_of_its_kind(rank_figures: list[dict[str, Figures]], case: str) -> None:
    for rank in rank_figures:
        delay = rank[f"{case} transfer"]["slept_s"]
        assert delay >= 0.8
        assert more(rank, f"{case} transfer", "transfer", kind_counted(case)) == pytest.approx(delay, rel=0.05)
        assert more(rank, f"{case} transfer", "phases", "communication") == pytest.approx(delay, rel=0.05)
        for other in ("compute", "waiting", "other"):
            assert more(rank, f"{case} transfer", "phases", other) == pytest.approx(0, abs=0.05 * delay)


def test_kinds_add_up_to_communication_and_phases_to_the_wall_time(rank_figures: list[dict[str, Figures]]) -> None:
    for step in (step for rank in rank_figures for step in rank.values()):
        phases = step["phases"]
        assert sum(phases.values()) == pytest.approx(2 * phases["wall"])
        assert sum(step["transfer"].values()) == pytest.approx(phases["communication"], abs=1e-6)
        assert sum(step["waiting"].values()) == pytest.approx(phases["waiting"])


def test_nothing_is_counted_as_another_kind(rank_figures: list[dict[str, Figures]]) -> None:
    for rank in rank_figures:
        for case, step in rank.items():
            assert {name for name, seconds in step["transfer"].items() if seconds} == {kind_counted(case)}


def test_waiting_is_told_between_machines_whose_clocks_differ(rank_figures: list[dict[str, Figures]]) -> None:
    quick, slow = rank_figures
    delay = slow["apart 1 rank"]["slept_s"]
    assert more(quick, "apart 1 rank", "waiting", "gradients") == pytest.approx(delay, rel=0.05)
    assert more(slow, "apart 1 rank", "waiting", "gradients") == pytest.approx(0, abs=0.05 * delay)
