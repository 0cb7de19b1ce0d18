"""A training whose rank is stopped ends by itself, says which rank it was, and can be resumed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcbench.phase_names import PHASES, STEP_PHASES
from hpcbench.results.run_folder import RunFolder
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.interrupted import attempts, launched

pytestmark = [pytest.mark.slow, pytest.mark.mpi, pytest.mark.usefixtures("forked_processes")]

INIT = {"where": "init", "hang_s": 600, "ranks": [0]}
"""Rank 0 sleeps where the model is built."""


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_hang_in_the_initialisation_ends_the_run(world_size: int, cosmos: Path, tmp_path: Path) -> None:
    words = arguments(cosmos, tmp_path / "run", "--parallel.hang_s", "1")
    (found,) = attempts({"words": words, "plan": INIT, "world_size": world_size})
    assert found["codes"] == [1] * world_size, found
    assert "aborted: rank 0 on " in found["said"]
    assert "in init" in found["said"]
    assert "build_model" in found["said"], "its stack, since there is no run folder yet"
    assert "above; start again" in found["said"]
    assert found["seconds"] < 60


BASELINES = ("--parallel.hang_s", "1", "--train.max_epochs", "1", "--train.baselines", "true")


def is_completed(run: Path, cosmos: Path) -> bool:
    """Whether a run that hung in its baselines had its result, says that rank 0 hung, and is completed when resumed."""
    summary = RunFolder.open(run).read_summary()
    assert (summary.status, summary.cause, summary.complete) == ("success", "epochs", False)
    assert re.search(r"rank 0 on \S+ stood still for .* in finalize", (run / "hang.txt").read_text())
    words = arguments(cosmos, run, "--resume", "--train.baselines", "true")
    (found,) = attempts({"words": words, "world_size": 2})
    assert found["codes"] == [0, 0], found
    after = RunFolder.open(run).read_summary()
    return after.complete and "predict the mean" in after.baselines


def test_rank_0_stopped_in_the_baselines_ends_the_run(cosmos: Path, mpiexec: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop = {"where": "baselines", "signal": "SIGSTOP", "ranks": [0]}
    code, said = launched([mpiexec, "-n", "2"], stop, arguments(cosmos, run, *BASELINES))
    assert code not in (0, 2, 3), said
    assert "aborted: rank 0 on " in said
    assert " in finalize" in said
    assert "its process stopped" in said
    assert is_completed(run, cosmos)


def test_rank_0_that_sleeps_in_the_baselines_ends_the_run(cosmos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    sleep = {"where": "baselines", "hang_s": 600, "ranks": [0]}
    (found,) = attempts({"words": arguments(cosmos, run, *BASELINES), "plan": sleep, "world_size": 2})
    assert found["codes"] == [1, 1], found
    assert "aborted: rank 0 on " in found["said"]
    assert "time.sleep" in (run / "hang.txt").read_text(), "its stack"
    assert is_completed(run, cosmos)


ENTERED = [name for name in PHASES if name not in ("waiting", "other")]
STOPPED = [(name, (1 + number) % 2) for number, name in enumerate(ENTERED)]
"""Phases, and the rank that is stopped in each: 1 and 0 in turns."""


@pytest.mark.parametrize(("phase", "rank"), STOPPED)
def test_a_training_whose_rank_is_stopped_in_any_phase_ends_and_names_it(
    phase: str, rank: int, cosmos: Path, mpiexec: str, tmp_path: Path
) -> None:
    """All but those that no rank enters: waiting is told from communication afterwards, and other is what is left."""
    run = tmp_path / "run"
    where = {"where": "init"} if phase == "init" else {"phase": phase}
    number = 10 if phase in STEP_PHASES else 1
    settings = ("--parallel.hang_s", "1", "--train.local_batch_size", "1", "--train.max_epochs", "2")
    words = arguments(cosmos, run, *settings, "--staging.destination", str(tmp_path / "staged"))
    stop = {**where, "number": number, "signal": "SIGSTOP", "ranks": [rank]}
    code, said = launched([mpiexec, "-n", "2"], stop, words)
    assert code not in (0, 2, 3), said
    assert f"aborted: rank {rank} on " in said
    assert "stood still for " in said
    assert f" in {phase}" in said
    assert "its process stopped" in said
    if phase != "init":
        summary = RunFolder.open(run).read_summary()
        # After the clock the run has its result, and lacks what else it writes.
        ended = ("success", "epochs", False) if phase == "finalize" else ("aborted", "hang", True)
        assert (summary.status, summary.cause, summary.complete) == ended
        assert f"rank {rank} on " in (run / "hang.txt").read_text().splitlines()[0]
