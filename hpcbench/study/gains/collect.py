"""A copy of a gains study that is fit for a repository: small, and without what names the machine it ran on."""

from __future__ import annotations

from pathlib import Path

from hpcbench.study.folder import StudyFolder
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.page import PAGE
from hpcbench.study.gains.study import read_statuses
from hpcbench.study.scaling.collect import copy, copy_run, numbered
from staging.errors import InputError

PAGES = ("study.json", "results.csv", "table.txt", PAGE)


def collect(study: Gains, folder: StudyFolder, out: Path) -> int:
    """Copy the definition, the pages and the runs that are done into ``out``; returns how many runs.

    Raises ``InputError`` where ``out`` holds another thing than an earlier copy.
    """
    target = StudyFolder(out)
    if out.exists() and any(out.iterdir()) and not target.definition.exists():
        raise InputError(f"{out} is not empty and holds no study; give a new folder with --out")
    if out.resolve() == folder.path.resolve():
        raise InputError(f"--out {out} is the study itself; give another folder")
    target.runs.mkdir(parents=True, exist_ok=True)
    done = [name for name, state in read_statuses(study, folder).items() if state.done]
    nodes = numbered([folder.run(name) for name in done])
    pictures = [*folder.path.glob("*.png"), *folder.path.glob("*.svg")]
    for path in [folder.path / name for name in PAGES] + sorted(pictures):
        if path.exists():
            copy(path, out / path.name, nodes)
    for name in done:
        copy_run(folder.run(name), target.run(name), nodes, None)
    return len(done)
