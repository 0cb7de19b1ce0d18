"""Makes a copy of a scaling study that is fit for a repository: small, and without the names of its machine."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcbench.batch.job_energy import FILE, JobEnergy, keep
from hpcbench.results.attempts import FILE as ATTEMPTS
from hpcbench.results.attempts import Attempt, Attempts
from hpcbench.results.run_folder import RunFolder, write_atomic
from hpcbench.results.units import counted
from hpcbench.study.folder import StudyFolder, begin_copy, begin_run_copy
from hpcbench.study.progress import say
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.energy import accounted_energies
from hpcbench.study.scaling.joined import keep_in_copy
from hpcbench.study.scaling.run_figures import read_json, read_staging
from hpcbench.study.scaling.run_matrix import all_runs
from hpcbench.study.study_jobs import packing_jobs, study_statuses
from staging.formats.regular import read_text, refuse_special

PAGES = ("study.json", "results.csv", "table.txt", "scaling.html", "proposal.txt", "proposal.tex", "proposal.csv")
TEXTS = (".txt", ".tex", ".csv", ".html", ".svg")
"""Endings of pages that may name nodes."""
KEPT = ("mllog.txt", "epochs.csv", FILE)
"""Files of a run that are kept, except for the names of nodes."""
MADE = (*KEPT, ATTEMPTS, "ranks.csv", "staging.json", "summary.json")
"""Everything that a copy of a run may hold."""
STAGED = ("seconds", "bytes_landed", "bytes_per_s")
"""What is kept of a staging report."""


def collect(study: Scaling, folder: StudyFolder, out: Path) -> int:
    """Copy the definition, the pages and the runs that are done into ``out``; returns the number of runs.

    Failed runs are left out, with a line that says so. Raises ``InputError`` if ``out`` holds anything other than an
    earlier copy.
    """
    target = begin_copy(folder, out)
    runs = study_statuses(folder, [run.name for run in all_runs(study)])
    done = [name for name, run in runs.items() if run.done]
    names = numbered([folder.run(name) for name in done])
    copy_pages(folder, PAGES, out, names)
    keep_in_copy(study, folder.path, target)
    energies = accounted_energies([folder.run(name) for name in done], packing_jobs(folder))
    for name in done:
        copy_run(folder.run(name), target.run(name), names, energies.get(folder.run(name)))
    if failed := sum(run.status == "failed" for run in runs.values()):
        say(f"left out: {counted(failed, 'failed run')}; a report of the copy counts them as left to run")
    return len(done)


def copy_pages(folder: StudyFolder, pages: Sequence[str], out: Path, names: Mapping[str, str]) -> None:
    """Copy those of ``pages`` that exist, and all plots."""
    plots = sorted([*folder.path.glob("*.png"), *folder.path.glob("*.svg")])
    for path in [*(folder.path / name for name in pages), *plots]:
        if path.exists():
            copy(path, out / path.name, names)


def numbered(runs: Sequence[Path]) -> dict[str, str]:
    """A number for the name of every node, the same in all runs; also for a machine that simulates nodes."""
    hosts: dict[str, None] = {}
    for path in runs:
        # A rank that continued on another node names all its nodes.
        hosts |= dict.fromkeys(node for row in ranks_of(path) for node in row["node"].split(", "))
        if (described := RunFolder(path).environment).exists():
            hosts[str(read_json(described).get("host") or "")] = None
    real = [name for name in hosts if name and not name.startswith("simulated node")]
    return {name: f"node {number}" for number, name in enumerate(real)}


def ranks_of(path: Path) -> list[dict[str, str]]:
    """The rows of ``ranks.csv``, as they are in the file."""
    return list(csv.DictReader(io.StringIO(read_text(RunFolder(path).ranks))))


def copy_run(source: Path, target: Path, names: Mapping[str, str], energy: JobEnergy | None) -> None:
    """Copy what the page of a study needs of a run, with numbers for the names of nodes."""
    begin_run_copy(target, MADE)
    for name in KEPT:
        if (source / name).exists():
            copy(source / name, target / name, names)
    if energy is not None and not (target / FILE).exists():
        keep(energy, target)  # for the copy, the scheduler cannot be asked
    run, attempts = RunFolder(source), Attempts.read(source).attempts
    if len(attempts) > 1:  # when the run was not at work
        Attempts([Attempt(attempt.started, attempt.ended, attempt.first_step, attempt.last_step, attempt.cause)
                  for attempt in attempts]).write(target)  # fmt: skip
    RunFolder(target).write_ranks(
        [{key: without_names(value, names) for key, value in row.items()} for row in ranks_of(source)]
    )
    if (report := read_staging(run)) is not None:
        write_atomic(target / run.staging.name, json.dumps({key: report[key] for key in STAGED}, indent=2) + "\n")
    summary = read_json(run.summary)
    for key in ("slow_nodes", "energy_note"):
        summary[key] = json.loads(without_names(json.dumps(summary[key]), names))
    write_atomic(target / run.summary.name, json.dumps(summary, indent=2) + "\n")


def copy(source: Path, target: Path, names: Mapping[str, str]) -> None:
    """Copy a file; in a text, replace the names of nodes by numbers."""
    if source.suffix in TEXTS:
        write_atomic(target, without_names(read_text(source), names))
    else:
        refuse_special(source)
        shutil.copyfile(source, target)


def without_names(text: str, names: Mapping[str, str]) -> str:
    """``text`` with numbers for whole-word names of nodes, also for those that a line break splits at a hyphen."""
    if not names:
        return text
    words = "|".join(re.escape(name).replace(r"\-", r"-\s*") for name in sorted(names, key=len, reverse=True))
    pattern = rf"(?<![\w.-])(?:{words})(?![\w-])"
    return re.sub(pattern, lambda match: names["".join(match[0].split())], text)
