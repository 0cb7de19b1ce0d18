"""Studies on a site, and their continuations, killed at their writes, renames and starts of children."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from hpcbench.batch import submission
from hpcbench.batch.packed_runs import packed_runs
from hpcbench.cli.main import main
from tests.hpcbench.batch.waiting_slurm import SLOW_S, Queue, changes, killed

STUDIES = {
    "strong": "--nodes 1,2 --repeats 1 --steps 9 --no-stage --train.local_batch_size 2",
    "throughput": "--nodes 2 --instance-nodes 1 --repeats 1 --steps 9 --no-stage --train.local_batch_size 2",
    "convergence": "--batch-sizes 2,4,8 --optimizers sgd --seeds 1 --runs-per-job 2",
}
"""Two runs in a job each, two instances in one, and three runs in two jobs."""
RUNS = {
    "strong": ["n0001-r1", "n0002-r1"],
    "throughput": ["n0002-r1-i001", "n0002-r1-i002"],
    "convergence": [f"b{batch}-sgd-x1-seed1" for batch in (2, 4, 8)],
}


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    return Queue(tmp_path, monkeypatch)


def start(kind: str, folder: Path, data: Path) -> int:
    """Begin the study, or go on with it by its own command."""
    words = ["study", kind, "cosmoflow", "--site", "cluster", "--preset", "smoke", *STUDIES[kind].split()]
    return main([*words, "--data.root", str(data), "--study-dir", str(folder)])


def resume(folder: Path) -> int:
    """Continue it."""
    return main(["study", "resume", str(folder)])


def submitted(queue: Queue, folder: Path) -> Counter[str]:
    """How many jobs in the queue make each run of the study."""
    found: Counter[str] = Counter()
    for path in (Path(job) for job in queue.folders() if job.startswith(f"{folder}/")):
        packed = packed_runs(path)
        found.update([path.name] if packed is None else [*packed.words])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("most", [2, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("kind", STUDIES)
def test_each_run_is_in_one_job_wherever_a_study_is_killed(
    kind: str, resumed: bool, most: int | None, queue: Queue, small_cosmos: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """With a queue that answers, fails once or is down, at all changes made then, or at so many that chance picks.

    It is down after that, too.
    """
    monkeypatch.setattr(submission, "SETTLED_S", 0.5)
    start(kind, tmp_path / "first", small_cosmos)  # imports what children then have
    middle = 1 + changes(lambda: start(kind, tmp_path / "all", small_cosmos)) // 2

    def begin(folder: Path) -> int:
        """The command that is killed; where that is ``resume``, another one was killed midway before it."""
        return resume(folder) if resumed else start(kind, folder, small_cosmos)

    def prepare(folder: Path, trouble: Path | None) -> None:
        if resumed:
            assert killed(lambda: start(kind, folder, small_cosmos), middle)
            time.sleep(0.6)
        if trouble is not None:
            trouble.touch()

    dice = random.Random(7)
    kills: list[tuple[Path | None, int]] = []
    for trouble in (None, queue.fails, queue.down):
        folder = tmp_path / f"counted-{len(kills)}"
        prepare(folder, trouble)
        kills += [(trouble, instant) for instant in instants(changes(lambda: begin(folder)), most, dice)]  # noqa: B023
        queue.fails.unlink(missing_ok=True)
        queue.down.unlink(missing_ok=True)
    for number, (trouble, instant) in enumerate(kills):
        folder = tmp_path / f"study-{number}"
        prepare(folder, trouble)
        assert killed(lambda: begin(folder), instant), (trouble, instant)  # noqa: B023
        queue.fails.unlink(missing_ok=True)
        queue.down.touch()
        time.sleep(2 * SLOW_S)
        before = queue.folders()
        if any(path.startswith(f"{folder}/") for path in before):
            resume(folder)
        assert queue.folders() == before, "while nobody can be asked, nothing is submitted"
        queue.down.unlink()
        time.sleep(0.6 + 2 * SLOW_S)
        for _ in range(3):
            assert start(kind, folder, small_cosmos) in (0, 2)
            assert resume(folder) in (0, 2)
            time.sleep(0.6)
        assert submitted(queue, folder) == dict.fromkeys(RUNS[kind], 1), (trouble, instant)


def instants(last: int, most: int | None, dice: random.Random) -> list[int]:
    """The numbers of all changes to ``last``, or of so many, each drawn from its part of them."""
    bounds = [part * last // (most or last) for part in range((most or last) + 1)]
    return [1 + dice.randrange(low, high) for low, high in itertools.pairwise(bounds)]
