"""An injected delay shows in the right line on meshes of several kinds: spatial and data, sharded, batch norm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hpcbench.parallel.test_ranks import run_program

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.usefixtures("forked_processes")]

PROGRAM = Path(__file__).with_name("programs") / "delayed_mesh.py"
PHASES = ("input_wait", "compute", "communication", "waiting", "optimizer", "other")
PHASE_OF = {"waiting": "waiting", "transfer": "communication"}
WAITS = {
    "split 0 rank": ("gradients", "gradients", "halo"),
    "split 1 rank": ("gradients", "gradients", "halo"),
    "statistics 0 rank": ("gradients", "gradients", "batch_norm"),
    "statistics 1 rank": ("gradients", "gradients", "batch_norm"),
    "sharded 0 rank": ("halo", "sharding", "halo"),
    "sharded 1 rank": ("sharding", "sharding", "halo"),
}
"""The messages at which ranks 0, 1 and 2 wait, where rank 3 sleeps before the forward (0) or the backward pass (1).

Rank 2 shares samples with rank 3, and gathers parameters with rank 0. The others meet rank 3 when gradients are summed,
or where it is first in a gather (rank 1), and then who meets those (rank 0).
"""
TRANSFERS = {
    "split": ["0 halo", "1 halo", "1 gradients"],
    "statistics": ["0 batch_norm", "1 batch_norm"],
    "sharded": ["0 halo", "1 halo", "0 sharding", "1 sharding"],
}
PAIRS = {"split 0 pair halo": "halo", "statistics 0 pair batch_norm": "batch_norm"}
"""Messages that take longer on the second pair alone."""
Figures = dict[str, Any]


@pytest.fixture(scope="module")
def rank_figures(mpiexec: str) -> list[dict[str, Figures]]:
    """All ranks, each with the figures of a step of every case."""
    return run_program(mpiexec, "-n", 4, sys.executable, PROGRAM, timeout_s=560)


def shows(rank: dict[str, Figures], case: str, where: str, kind: str, delay: float) -> None:
    """The delay is ``waiting`` or ``transfer`` (``where``) of messages of ``kind``, and nothing else takes longer."""
    usual, step = rank[f"{case.split(maxsplit=1)[0]} none"], rank[case]
    more = {
        (table, name): step[table][name] - usual[table].get(name, 0.0)
        for table in ("phases", "waiting", "transfer")
        for name in step[table]
        if table != "phases" or name in PHASES
    }
    hit = {("phases", PHASE_OF.get(where, where)), (where, kind)}
    assert delay >= 0.8
    for key in hit & more.keys():
        assert more[key] == pytest.approx(delay, rel=0.05), key
    for key in more.keys() - hit:
        assert more[key] == pytest.approx(0, abs=0.05 * delay), key


@pytest.mark.parametrize("case", WAITS)
def test_a_slow_rank_is_waiting_where_each_of_the_others_first_meets_it(
    rank_figures: list[dict[str, Figures]], case: str
) -> None:
    delay = rank_figures[3][case]["slept_s"]
    for rank, kind in zip(rank_figures, WAITS[case], strict=False):
        shows(rank, case, "waiting", kind, delay)
    shows(rank_figures[3], case, "compute", "", delay)


@pytest.mark.parametrize("case", [f"{kind} {delay}" for kind, delays in TRANSFERS.items() for delay in delays])
def test_a_slow_transfer_is_communication_of_its_kind(rank_figures: list[dict[str, Figures]], case: str) -> None:
    for rank in rank_figures:
        shows(rank, case, "transfer", case.rsplit(maxsplit=1)[-1], rank[case]["slept_s"])


@pytest.mark.parametrize("case", PAIRS)
def test_slow_messages_of_one_pair_are_waiting_of_the_other(rank_figures: list[dict[str, Figures]], case: str) -> None:
    delay = max(rank[case]["slept_s"] for rank in rank_figures)
    for rank in rank_figures[:2]:
        shows(rank, case, "waiting", "gradients", delay)
    for rank in rank_figures[2:]:
        shows(rank, case, "transfer", PAIRS[case], rank[case]["slept_s"])
