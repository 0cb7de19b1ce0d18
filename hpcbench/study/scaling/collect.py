"""A copy of a scaling study that is fit for a repository: small, and without what names the machine it ran on."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

from hpcbench.results.run_folder import RunFolder, write_atomic
from hpcbench.study.folder import StudyFolder
from hpcbench.study.scaling.definition import Scaling
from hpcbench.study.scaling.ladder import all_runs
from hpcbench.study.scaling.measured import read_json
from hpcbench.study.scaling.standing import look
from staging.errors import InputError

PAGES = ("study.json", "results.csv", "table.txt", "scaling.html", "proposal.txt", "proposal.tex", "proposal.csv")
KEPT = ("mllog.txt", "epochs.csv")
"""Files of a run that are kept as they are."""
STAGED = ("seconds", "bytes_landed", "bytes_per_s")
"""What is kept of a staging report."""


def collect(study: Scaling, folder: StudyFolder, out: Path) -> int:
    """Copy the definition, the pages and the runs that are done into ``out``; returns how many runs.

    Raises ``InputError`` where ``out`` holds another thing than an earlier copy.
    """
    target = StudyFolder(out)
    if out.exists() and any(out.iterdir()) and not target.definition.exists():
        raise InputError(f"{out} is not empty and holds no study; give a new folder with --out")
    if out.resolve() == folder.path.resolve():
        raise InputError(f"--out {out} is the study itself; give another folder")
    target.runs.mkdir(parents=True, exist_ok=True)
    pictures = [*folder.path.glob("*.png"), *folder.path.glob("*.svg")]
    for path in [folder.path / name for name in PAGES] + sorted(pictures):
        if path.exists():
            shutil.copyfile(path, out / path.name)
    done = [run.name for run in all_runs(study) if look(folder.run(run.name)).status == "done"]
    for name in done:
        copy_run(folder.run(name), target.run(name))
    return len(done)


def copy_run(source: Path, target: Path) -> None:
    """What the page of a study needs of a run, with numbers for the names of nodes."""
    target.mkdir(exist_ok=True)
    for name in KEPT:
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    run = RunFolder(source)
    rows = list(csv.DictReader(io.StringIO(run.ranks.read_text(encoding="utf-8"))))
    nodes = list(dict.fromkeys(row["node"] for row in rows))
    names = {node: node if node.startswith("simulated") else f"node {number}" for number, node in enumerate(nodes)}
    RunFolder(target).write_ranks([{**row, "node": names[row["node"]]} for row in rows])
    if run.staging.exists():
        report = read_json(run.staging)
        write_atomic(target / run.staging.name, json.dumps({key: report[key] for key in STAGED}, indent=2) + "\n")
    summary = dict(read_json(run.summary))
    for key in ("slow_nodes", "energy_note"):
        summary[key] = json.loads(without_names(json.dumps(summary[key]), names))
    write_atomic(target / run.summary.name, json.dumps(summary, indent=2) + "\n")


def without_names(text: str, names: dict[str, str]) -> str:
    """``text`` with numbers for the names of nodes, the longest first, as one may begin another."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return text
