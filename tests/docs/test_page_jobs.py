"""The jobs that pages submit are submitted as they say, to a Slurm or a PBS of a node or two, and run to their end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.conftest import PATIENCE_S
from tests.docs.page_commands import BEFORE, CLUSTER, ON_A_CLUSTER, check_files, needs_scheduler, submits, to_run
from tests.docs.walk import Walk
from tests.documented_commands import Command

pytestmark = pytest.mark.usefixtures("forked_processes", "undrawn")


@pytest.mark.slow
@pytest.mark.slurm
@pytest.mark.usefixtures("mpiexec")
@pytest.mark.parametrize("source", CLUSTER)
def test_the_jobs_of_a_page_are_submitted_and_run(source: str, walk: Walk, cluster: Callable[[], None]) -> None:
    submitted: list[list[str]] = []
    before = to_run(BEFORE[source])[:1] if source in BEFORE else []
    for command in (*before, *to_run(source)):
        if source not in ON_A_CLUSTER and not needs_scheduler(source, command):
            continue
        prepare(command, walk, cluster, submitted)
        walk.type(command)
        if submits(command):
            words = [word for word in walk.small(command) if word != "--dry-run"]
            submitted.append(words)
            if "--dry-run" in command.words:
                walk.succeed(words, f"{command}, without --dry-run")
    cluster()
    for words in submitted:
        if "--study-dir" in words:
            check_study(Path(words[words.index("--study-dir") + 1]))
    if source in ON_A_CLUSTER:
        check_files(source)


def prepare(command: Command, walk: Walk, cluster: Callable[[], None], submitted: list[list[str]]) -> None:
    """What a user does before a command: wait for jobs, or for the first of a study, or submit one to cancel it."""
    text = str(command)
    if text.startswith("hpcbench jobs --cancel"):
        walk.succeed(next(words for words in submitted if words[1] == "submit"), "once more, to cancel it")
    if text.startswith("hpcbench study cancel"):
        deadline = time.monotonic() + PATIENCE_S
        while not list(Path(command.words[3]).glob("runs/*/**/summary.json")):
            assert time.monotonic() < deadline, "no run of the study has ended"
            time.sleep(0.2)
    if text.startswith("hpcbench report"):
        cluster()
    if text.startswith("hpcbench study report"):
        cluster()  # `resume` leaves alone what was cancelled and is still ending
        walk.succeed(["hpcbench", "study", "resume", command.words[3], "--wait"], "until all jobs have ended")


def check_study(folder: Path) -> None:
    """Runs are done; of a ladder those of the smallest size, for the PBS of these tests has no node for more."""
    summaries = [json.loads(path.read_text()) for path in folder.glob("runs/[bn]*/**/summary.json")
                 if path.relative_to(folder).parts[1].startswith(("b", "n0001-"))]  # fmt: skip
    assert summaries
    assert {each["status"] for each in summaries} <= {"success", "target_not_reached"}
