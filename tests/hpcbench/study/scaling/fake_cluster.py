"""Fake schedulers of a cluster whose jobs a test ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpcbench.batch.site import Site, read_site
from hpcbench.study.run_status import record_crash
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.run_matrix import PlannedRun, all_runs, groups
from tests.hpcbench.study.scaling.test_read_results import write_planned

WHY = "no memory"
AFTERWARDS = "srun: error: n2: task 1: Terminated\nsrun: Force Terminated StepId=17.0\n"
"""What Slurm says of the ranks that it ends because of that."""
"""What a job that fails says last."""
ANSWERS = {
    "slurm": {"submitted": "@;cluster", "waiting": "@|PENDING|Priority", "running": "@|RUNNING|None",
              "done": "@|COMPLETED|None", "failed": "@|FAILED|NonZeroExitCode", "time limit": "@|TIMEOUT|TimeLimit"},
    "pbs": {"submitted": "@.server", **{state: json.dumps({"@.server": job})[1:-1] for state, job in {
            "waiting": {"job_state": "Q", "comment": "Priority"}, "running": {"job_state": "R"},
            "done": {"job_state": "F", "Exit_status": 0}, "failed": {"job_state": "F", "Exit_status": 1},
            "time limit": {"job_state": "F", "Exit_status": -29}}.items()}},
    "flux": {"submitted": "f@", "waiting": "f@|@|S|-|", "running": "f@|@|R|-|", "done": "f@|@|CD|0|",
             "failed": "f@|@|F|1|", "time limit": "f@|@|F|142|timeout"},
    "lsf": {"submitted": "Job <@> is submitted to queue <normal>.", "waiting": "@|PEND|-|-", "running": "@|RUN|-|-",
            "done": "@|DONE|-|-", "failed": "@|EXIT|1|-", "time limit": "@|EXIT|140|TERM_RUNLIMIT: run time limit"},
}  # fmt: skip
REFUSED = {
    "slurm": "sbatch: error: Batch job submission failed", "pbs": "qsub: Job rejected", "flux": "flux-batch: ERROR",
    "lsf": "Job not submitted",
}  # fmt: skip
COMMANDS = {
    "slurm": ("sbatch", "squeue"),
    "pbs": ("qsub", "qstat", "qselect"),
    "flux": ("flux",),
    "lsf": ("bsub", "bjobs"),
}
LAUNCHERS = {"slurm": "srun", "pbs": "pals", "flux": "flux", "lsf": "openmpi"}
PROGRAM = r"""#!/bin/bash
export PATH=/usr/bin:/bin
cd "$(dirname "$0")/.."
case "${0##*/} $1" in
sbatch*|qsub*|bsub*|"flux batch")
    n=$(($(ls jobs | wc -l) + 1))
    [ "$n" -le "$(cat limit)" ] || { echo "$(cat answers/refused): too many jobs" >&2; exit 1; }
    mkdir "jobs/$n"
    echo "$OLDPWD" > "jobs/$n/folder"
    echo "submit ${OLDPWD##*/}" >> notes
    sed "s/@/$n/" answers/submitted ;;
*)
    echo "${0##*/}" >> questions
    ids=()
    for word; do case "$word" in
        --jobs=*) IFS=, read -r -a ids <<< "${word#--jobs=}" ;;
        --*) ;;
        [0-9f]*) ids+=("$word") ;;
    esac; done
    separator=
    [ "${0##*/}" != qstat ] || printf '{"Jobs": {'
    for id in "${ids[@]}"; do
        n=${id//[!0-9]/}
        folder=$(cat "jobs/$n/folder")
        echo >> "jobs/$n/asked"
        case $(wc -l < "jobs/$n/asked") in 1) state=waiting ;; 2) state=running ;; *) state=ended ;; esac
        if [ "$state" = ended ]; then
            attempt=$(grep -cx "submit ${folder##*/}" notes)
            end="ends/${folder##*/}.$attempt"
            if [ ! -e "jobs/$n/state" ]; then
                cp -r "$end/." "$folder/"
                [ ! -e "$end.runs" ] || cp -r "$end.runs/." "$folder/../../runs/"
                echo "end ${folder##*/}" >> notes
            fi
            cp "$end.state" "jobs/$n/state"
            state=$(cat "jobs/$n/state")
        fi
        printf '%s' "$separator"
        sed "s/@/$n/g" "answers/$state"
        [ "${0##*/}" != qstat ] || separator=,
    done
    [ "${0##*/}" != qstat ] || echo '}}' ;;
esac
"""


class Cluster:
    """Commands of a scheduler: a job waits when it is first asked for, then it runs, then it has ended."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str = "slurm") -> None:
        self.folder, self.log = folder, "hpcbench.o1" if scheduler == "pbs" else "job-1.log"
        for name in ("bin", "jobs", "ends", "answers"):
            (folder / name).mkdir(parents=True)
        for name, text in {**ANSWERS[scheduler], "refused": REFUSED[scheduler]}.items():
            (folder / "answers" / name).write_text(text + "\n")
        for name in COMMANDS[scheduler]:
            (folder / "bin" / name).write_text(PROGRAM)
            (folder / "bin" / name).chmod(0o755)
        (folder / "notes").touch()
        self.limit(1000)
        profile = folder / "cluster.yaml"
        profile.write_text(f"title: a cluster\nscheduler: {scheduler}\nlauncher: {LAUNCHERS[scheduler]}\n"
                           "node: {cores: 4}\n")  # fmt: skip
        self.site: Site = read_site(profile)
        monkeypatch.setenv("PATH", str(folder / "bin"))
        monkeypatch.setenv("HPCBENCH_SITES", str(folder))

    def will(self, study: Scaling, **failing: str) -> None:
        """All runs end well, the first attempt of those that are named as they are told."""
        for run in all_runs(study):
            first = failing.get(run.name.replace("-", "_"))
            for attempt in (1, 2):
                end = self.ends(run, attempt)
                if first is None or attempt == 2:
                    write_planned(study, run, end)
                else:
                    end.mkdir(exist_ok=True)
                    (end / self.log).write_text(f"starting\nhpcbench: error: {WHY}\n{AFTERWARDS}")
                end.with_name(f"{end.name}.state").write_text("done" if first is None or attempt == 2 else first)

    def will_pack(self, study: Scaling) -> None:
        """After ``will``: each job makes a repeat, and one more those again of which a run fails."""
        failing = [group for group in groups(study) if any((self.ends(run, 1) / self.log).exists() for run in group)]
        first = [(group, 1) for group in groups(study)]
        for number, (group, attempt) in enumerate([*first, *((group, 2) for group in failing)], start=1):
            job = self.folder / "ends" / f"{number:04}.1"
            job.mkdir()
            job.with_name(f"{job.name}.state").write_text("done")
            for run in group:
                left = job.with_name(f"{job.name}.runs") / run.name
                shutil.copytree(self.ends(run, attempt), left)
                if (left / self.log).exists():
                    (left / self.log).unlink()
                    record_crash(left, 1, WHY)

    def ends(self, run: PlannedRun, attempt: int) -> Path:
        """What an attempt of a run leaves."""
        return self.folder / "ends" / f"{run.name}.{attempt}"

    def limit(self, jobs: int) -> None:
        """Refuse more jobs than so many."""
        (self.folder / "limit").write_text(str(jobs))

    def notes(self, kind: str = "") -> list[str]:
        """What was submitted and what has ended, in that order; or the names of one of the two."""
        lines = (self.folder / "notes").read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(kind)] if kind else lines
