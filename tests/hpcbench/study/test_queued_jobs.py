"""How many packed jobs of a study are in the queue at once, by its site's profile or by the command."""

from __future__ import annotations

import os
from pathlib import Path

from hpcbench.cli.main import main
from hpcbench.study.folder import StudyFolder
from tests.hpcbench.batch.waiting_slurm import Queue
from tests.hpcbench.study.test_packed_study import folder, queue, runs_of_jobs, words

__all__ = ["folder", "queue"]


def test_a_profile_says_how_many_jobs_are_queued_where_the_command_does_not(
    queue: Queue, folder: StudyFolder, small_cosmos: Path
) -> None:
    profile = Path(os.environ["HPCBENCH_SITES"], "cluster.yaml")
    profile.write_text(profile.read_text() + "queue: debug\nmost_jobs: 1\n")
    assert main(words(folder, small_cosmos)) == 0
    assert list(runs_of_jobs(folder)) == ["0001"]
    assert main(words(folder, small_cosmos, "--jobs", "2")) == 0
    assert list(runs_of_jobs(folder)) == ["0001", "0002"]


def test_the_figure_of_a_profile_is_for_its_own_queue(queue: Queue, folder: StudyFolder, small_cosmos: Path) -> None:
    profile = Path(os.environ["HPCBENCH_SITES"], "cluster.yaml")
    profile.write_text(profile.read_text() + "queue: debug\nmost_jobs: 1\n")
    assert main(words(folder, small_cosmos, "--queue", "prod")) == 0
    assert list(runs_of_jobs(folder)) == ["0001", "0002"]
