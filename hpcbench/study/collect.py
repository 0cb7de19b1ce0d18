"""Makes a copy of a study that is fit for a repository: small, and without the names of the machine it ran on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from hpcbench.results.run_folder import CRASH
from hpcbench.study.folder import StudyFolder, begin_copy, begin_run_copy
from hpcbench.study.run_status import read_run_status
from staging.formats.regular import refuse_special

KEPT = ("config.yaml", "mllog.txt", "epochs.csv", "summary.json", "noise_scale.csv", "trust_ratios.csv", CRASH)
"""Files of a run. ``environment.json`` and ``system.json`` are left out: they hold paths and the host name."""
OF_SEEDS = ("noise_scale.csv", "trust_ratios.csv")
"""Pages read these only of a study's seeds; they are most of what a run of a search would take."""
SEARCH = re.compile(r"-search\d*$")
"""How the name of a search's run ends."""
PAGES = ("study.json", "results.csv", "table.txt", "study.html")


def collect(folder: StudyFolder, out: Path) -> int:
    """Copy the definition, the pages and the runs that are done into ``out``; returns the number of runs.

    A study can continue in the copy. Raises ``InputError`` if ``out`` holds anything other than an earlier copy.
    """
    target = begin_copy(folder, out)
    for path in [folder.path / name for name in PAGES] + sorted(folder.path.glob("*.png")):
        if path.exists():
            refuse_special(path)
            shutil.copyfile(path, out / path.name)
    runs = sorted(path for path in folder.runs.iterdir() if path.is_dir()) if folder.runs.is_dir() else []
    done = [run for run in runs if read_run_status(run).final]
    for run in done:
        begin_run_copy(target.run(run.name), KEPT)
        for name in KEPT:
            if name in OF_SEEDS and SEARCH.search(run.name):
                continue
            if (run / name).exists():
                refuse_special(run / name)
                shutil.copyfile(run / name, target.run(run.name) / name)
    return len(done)
