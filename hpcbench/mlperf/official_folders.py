"""The official scores of many folders, on several processes where there are many logs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from hpcbench.mlperf.official_log import OfficialLog, read_official_log
from hpcbench.mlperf.official_score import OfficialScore, log_files, official_score
from staging.cores import cores_allowed

FEWEST = 200
"""Logs that are worth the start of other processes."""
Folder = tuple[OfficialScore, dict[str, OfficialLog]]


def official_folders(rulesets: Mapping[Path, str]) -> dict[Path, Folder]:
    """Score and logs of each folder that has logs, under its ruleset."""
    files = {folder: log_files(folder) for folder in rulesets}
    asked = [(folder, files[folder], ruleset) for folder, ruleset in rulesets.items() if files[folder]]
    workers = min(len(cores_allowed()), len(asked))
    if sum(map(len, files.values())) < FEWEST or workers < 2:
        found = map(official_folder, asked)
        return {folder: each for (folder, _, _), each in zip(asked, found, strict=True)}
    with ProcessPoolExecutor(workers) as pool:
        return {folder: each for (folder, _, _), each in zip(asked, pool.map(official_folder, asked), strict=True)}


def official_folder(asked: tuple[Path, list[Path], str]) -> Folder:
    """Score and logs of a folder."""
    folder, files, ruleset = asked
    logs = [read_official_log(path, ruleset) for path in files]
    throughput = folder.parent.name == "weak"
    return official_score(folder, logs, throughput, ruleset), {log.name: log for log in logs}
