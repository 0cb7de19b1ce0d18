"""Scaling studies on this machine: one run after the other."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.batch.job import Job
from hpcbench.batch.site import PROFILES, read_site
from hpcbench.exits import Aborted
from hpcbench.study.folder import StudyFolder
from hpcbench.study.run_status import RunStatus
from hpcbench.study.runner import ExecutionOptions
from hpcbench.study.scaling import study as studies
from hpcbench.study.scaling.jobs import job_of
from hpcbench.study.scaling.run_matrix import all_runs
from hpcbench.study.scaling.study import make_runs
from staging.errors import InputError
from tests.hpcbench.study.scaling.fake_cluster import WHY
from tests.hpcbench.study.scaling.test_read_results import write_planned
from tests.hpcbench.study.scaling.test_study import STUDY, folder, look, states

__all__ = ["folder"]

HERE = replace(STUDY, site="local", nodes=(1,), repeats=4, cores_per_rank=1)
STAND_IN = """#!/bin/bash
export PATH=/usr/bin:/bin
[ "$1 $2" = "jobs --take" ] && echo "{ends}/hold" && exit 0
[ "$1" = jobs ] && exit 1
[ "$1" = train ] || exit 0
echo begin >> {ends}/notes
trap 'echo end >> {ends}/notes' EXIT
run=$(sed "s/.*--run-dir \\([^ ]*\\).*/\\1/" <<< "$*")
end="{ends}/$(basename "$run")"
[ -d "$end" ] && cp -r "$end/." "$run/" && exit 0
[ -e "$end.waits" ] && kill -s "$(cat "$end.waits")" {pid} && sleep 60
echo "hpcbench: error: {why}"
exit 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jobs without a scheduler run a program that leaves what is found in this folder, or fails."""
    ends, program = tmp_path / "ends", tmp_path / "program"
    ends.mkdir()
    program.write_text(STAND_IN.format(ends=ends, pid=os.getpid(), why=WHY))
    program.chmod(0o755)

    def made(*arguments: Any) -> Job:
        return replace(job_of(*arguments), command=(str(program),), arguments=())

    monkeypatch.setattr(studies, "job_of", made)
    return ends


def bring_here(folder: StudyFolder, lines: list[str] | None = None, **ways: Any) -> dict[str, RunStatus]:
    speak = (lines if lines is not None else []).append
    site = read_site(PROFILES / "local.yaml")
    return make_runs(HERE, folder, ExecutionOptions(**ways), site=site, pauses_s=(0.01, 0.02), speak=speak)


def test_here_one_run_follows_the_other(here: Path, folder: StudyFolder) -> None:
    runs = all_runs(HERE)
    for run in runs[:1] + runs[2:]:
        write_planned(HERE, run, here / run.name)
    lines: list[str] = []
    found = bring_here(folder, lines)
    assert [line.partition(":")[0] for line in lines] == [f"[{n}/4] n0001-r{n}" for n in range(1, 5)]
    assert (found["n0001-r2"].status, found["n0001-r2"].reason) == ("failed", WHY)
    assert found["n0001-r4"].done
    assert (here / "notes").read_text().split() == ["begin", "end"] * 4


def test_here_a_signal_ends_the_run_and_the_same_command_goes_on(here: Path, folder: StudyFolder) -> None:
    runs = all_runs(HERE)
    for run in runs:
        write_planned(HERE, run, here / run.name)
    (here / "n0001-r2").rename(here / "n0001-r2.later")
    (here / "n0001-r2.waits").write_text("INT")
    with pytest.raises(Aborted, match="signal SIGINT; the same command continues from here") as caught:
        bring_here(folder)
    assert caught.value.exit_code == 130
    assert [look(folder, run.name).status for run in runs] == ["reached", "absent", "absent", "absent"]
    (here / "n0001-r2.later").rename(here / "n0001-r2")
    lines: list[str] = []
    assert states(bring_here(folder, lines)) == {"done"}, lines
    assert len(lines) == 3


def test_here_failures_end_what_runs_beside_them(here: Path, folder: StudyFolder) -> None:
    (here / "n0001-r2.waits").write_text("0")
    with pytest.raises(InputError, match=f"3 runs in a row failed, the last with: {WHY}"):
        bring_here(folder, at_once=4)
    states_ = {run.name: look(folder, run.name).status for run in all_runs(HERE)}
    assert states_.pop("n0001-r2") == "absent"
    assert set(states_.values()) == {"failed"}
