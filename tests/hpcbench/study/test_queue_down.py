"""Studies whose scheduler is down: its commands say so after the real delay, and nothing is submitted."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.hpcbench.batch.waiting_slurm import Queue
from tests.hpcbench.study.test_killed_studies import queue, start

__all__ = ["queue"]
DOWN_S = 9
"""``squeue`` of a controller that is down ends with 1 after so long."""


@pytest.mark.slow
def test_nothing_is_submitted_while_the_controller_is_down(queue: Queue, small_cosmos: Path, tmp_path: Path) -> None:
    """All at once, since each of them waits for the answer."""
    studies = {kind: tmp_path / kind for kind in ("strong", "convergence")}
    jobs = {"strong": 2, "convergence": 2}
    runs = {"strong": 2, "convergence": 3}
    for kind, folder in studies.items():
        assert start(kind, folder, small_cosmos) == 0
    before = queue.folders()
    assert len(before) == sum(jobs.values())
    queue.questions()
    queue.down.write_text(str(DOWN_S))

    def look(kind: str, command: str) -> str:
        words = [sys.executable, "-m", "hpcbench", "study", command, str(studies[kind])]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    asked = [(kind, command) for kind in studies for command in ("status", "resume")]
    with ThreadPoolExecutor() as pool:
        said = dict(zip(asked, pool.map(lambda each: look(*each), asked), strict=True))
    for (kind, command), text in said.items():
        assert f"{runs[kind]} unknown" in text, (kind, command, text)
        if command == "status":
            reason = "Slurm cannot be asked: squeue: slurm_load_jobs error: Socket timed out on send/recv operation"
            assert reason in " ".join(text.split()), (kind, text)
    assert queue.questions() == {"squeue": 4}, "once for each command, however many jobs there are"
    assert queue.folders() == before
    queue.down.unlink()
    for kind in studies:
        assert f"{runs[kind]} waiting" in look(kind, "resume")
    assert queue.folders() == before
