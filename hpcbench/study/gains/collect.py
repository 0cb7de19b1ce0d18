"""Makes a copy of a gains study that is fit for a repository: small, and without the names of the machine it ran on."""

from __future__ import annotations

from pathlib import Path

from hpcbench.study.folder import StudyFolder, begin_copy
from hpcbench.study.gains.definition import Gains
from hpcbench.study.gains.page import PAGE
from hpcbench.study.gains.study import read_statuses
from hpcbench.study.scaling.collect import copy_pages, copy_run, numbered

PAGES = ("study.json", "results.csv", "table.txt", PAGE)


def collect(study: Gains, folder: StudyFolder, out: Path) -> int:
    """Copy the definition, the pages and the runs that are done into ``out``; returns the number of runs.

    Raises ``InputError`` if ``out`` holds anything other than an earlier copy.
    """
    target = begin_copy(folder, out)
    done = [name for name, state in read_statuses(study, folder).items() if state.done]
    nodes = numbered([folder.run(name) for name in done])
    copy_pages(folder, PAGES, out, nodes)
    for name in done:
        copy_run(folder.run(name), target.run(name), nodes, None)
    return len(done)
