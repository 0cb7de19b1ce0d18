"""Notes on a folder of runs beyond the official rules; they do not affect the verdict."""

from __future__ import annotations

from pathlib import Path

from hpcbench.mlperf.entries import entries_of
from hpcbench.mlperf.find_logs import PRUNED, find_runs
from hpcbench.mlperf.official_log import read_official_log
from hpcbench.mlperf.official_score import log_files, official_score
from hpcbench.mlperf.package_check import FolderCheck
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.results.units import counted
from staging.errors import InputError

OFFICIAL = ("count: ", "seeds: ", "convergence: ", "official: ", "ruleset: ")
"""Findings that the package checker reports in its own words, and the ruleset, which is the one asked for."""


def notes_of(checked: FolderCheck) -> list[str]:
    """Check the runs of a folder against rules that no official tool checks."""
    try:
        records = read_runs(find_runs([checked.folder]))
    except InputError as error:
        return [str(error)]
    score = official_score(checked.folder, checked.logs, checked.throughput, checked.ruleset)
    official = {checked.folder: (score, {log.name: log for log in checked.logs})}
    notes = [text for entry in entries_of(records, official) for text in (*entry.faults, *entry.notes)
             if not text.startswith(OFFICIAL)]  # fmt: skip
    return notes + pruned_notes(checked)


def pruned_notes(checked: FolderCheck) -> list[str]:
    """Check pruned logs, which must keep the rules, too."""
    folder: Path = checked.folder / PRUNED
    logs = [read_official_log(path, checked.ruleset) for path in log_files(folder)]
    bad = [log.name for log in logs if not log.accepted]
    return [f"pruned: {counted(len(bad), 'log')} not accepted, {bad[0]} the first"] if bad else []
