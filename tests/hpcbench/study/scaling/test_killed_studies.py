"""A study and its continuation killed at their writes, renames and starts of children: one job for each run."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from hpcbench.batch import submission
from hpcbench.cli.main import main
from tests.hpcbench.batch.waiting_slurm import SLOW_S, Queue, killed

INSTANTS = 12
"""So many of all changes are tried, spread over the command, at places that chance picks."""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(tmp_path, monkeypatch)


def strong(folder: Path, data: Path) -> int:
    """A ladder of two sizes."""
    ladder = "--site cluster --preset smoke --nodes 1,2 --repeats 1 --steps 9 --no-stage --train.local_batch_size 2"
    words = ["study", "strong", "cosmoflow", *ladder.split()]
    return main([*words, "--data.root", str(data), "--study-dir", str(folder)])


def resume(folder: Path) -> int:
    """Continue it."""
    return main(["study", "resume", str(folder)])


@pytest.mark.slow
@pytest.mark.parametrize("command", ["strong", "resume"])
def test_each_run_gets_one_job_wherever_a_study_is_killed(
    command: str, queue: Queue, small_cosmos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submission, "SETTLED_S", 0.5)
    last = 0
    while killed(lambda: strong(tmp_path / f"all-{last}", small_cosmos), last + 1):  # noqa: B023
        last += 10
    chance = random.Random(7)
    for number in range(INSTANTS):
        folder = tmp_path / f"study-{number}"
        instant = 1 + (number * last) // INSTANTS + chance.randrange(max(1, last // INSTANTS))
        if command == "strong":
            killed(lambda: strong(folder, small_cosmos), instant)  # noqa: B023
        else:
            killed(lambda: strong(folder, small_cosmos), 1 + last // 2)  # noqa: B023
            killed(lambda: resume(folder), instant)  # noqa: B023
        queue.down.touch()
        time.sleep(2 * SLOW_S)
        before = queue.folders()
        if any(path.startswith(f"{folder}/") for path in before):
            resume(folder)
        assert queue.folders() == before, "while nobody can be asked, nothing is submitted"
        queue.down.unlink()
        time.sleep(0.6 + 2 * SLOW_S)
        for _ in range(3):
            assert strong(folder, small_cosmos) in (0, 2)
            assert resume(folder) in (0, 2)
            time.sleep(0.6)
        own = [Path(path).name for path in queue.folders() if path.startswith(f"{folder}/")]
        assert sorted(own) == ["n0001-r1", "n0002-r1"], (number, instant, last)
