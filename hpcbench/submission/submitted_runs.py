"""The runs of a submission, read from their folders or from those of studies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.application import find_application
from hpcbench.config.read_yaml import MOST_LEVELS, is_within, read_yaml
from hpcbench.measure.log_rules import PUBLISHED_TARGETS
from hpcbench.mlperf.convergence_check import RUNS
from hpcbench.mlperf.find_logs import LogLocation
from hpcbench.mlperf.own_runs import read_own_run
from hpcbench.mlperf.reached_target import QUALITIES
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from staging.errors import DataError, InputError
from staging.formats.regular import read_text

NO_RUNS = ("signal", "preempted", "full_disk", "rank_lost", "hang", "error")
"""Causes that say nothing about training: a run that they cut off does not count as one."""
INSTANCE = re.compile(r"(.+-r\d+)-i\d+")
"""Name of an instance's folder in a throughput study: size, repeat, instance."""


@dataclass(frozen=True)
class SubmittedRun:
    """A run that ended."""

    folder: RunFolder
    summary: Summary
    record: RunRecord
    config: Mapping[str, Any]
    """What ``config.yaml`` holds."""
    system: Mapping[str, Any]
    environment: Mapping[str, Any]
    """Empty if the run left no ``environment.json``."""
    job: Mapping[str, Any]
    """What the run's batch job requested; empty if there was none."""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return self.folder.path.absolute().name

    @property
    def nodes(self) -> int:
        """Nodes that it ran on."""
        return self.record.nodes or self.summary.nodes

    @property
    def benchmark(self) -> str:
        """The application's name in MLPerf HPC."""
        return self.record.application or self.summary.application

    @property
    def lower_is_better(self) -> bool:
        """Whether a lower quality is better."""
        return QUALITIES[self.benchmark] == "eval_error"

    @property
    def best(self) -> float | None:
        """The best quality of all evaluations."""
        values = self.record.qualities
        return None if not values else min(values) if self.lower_is_better else max(values)

    @property
    def converged(self) -> bool:
        """Whether it ended in success at the published quality; reaching a target of its own is not enough."""
        target, best = PUBLISHED_TARGETS[self.benchmark], self.best
        if self.record.status != "success" or best is None:
            return False
        return best <= target if self.lower_is_better else best >= target

    @property
    def platform(self) -> str:
        """Name of the system in the run's settings; empty if they have none, or only that of a host."""
        named = str(group_of(self.config, "submission").get("platform") or "")
        return "" if named == self.environment.get("host") else named


def read_submitted(paths: Sequence[Path], *, instances: bool = False) -> tuple[list[SubmittedRun], list[str]]:
    """The runs in run folders and studies, and lines on those that are left out. Each folder counts once.

    ``instances``: whether they are those of one throughput entry. Raises ``InputError`` for a path that is neither, for
    an application that is not in MLPerf HPC, and if no run is left.
    """
    folders = {folder.resolve(): folder for path in paths for folder in run_folders(path)}
    if instances:
        check_one_group(list(folders.values()))
    runs, left_out = [], []
    for folder in folders.values():
        if not (folder / "summary.json").exists():
            left_out.append(f"{folder} is left out: its run has not ended")
            continue
        run = read_run(folder)
        if run.summary.status == "aborted" and run.summary.cause in NO_RUNS:
            left_out.append(f"{folder} is left out: it was cut off ({run.summary.reason or run.summary.cause})")
            continue
        runs.append(run)
    if not runs:
        raise InputError(f"no run is left: {'; '.join(left_out)}")
    return runs, left_out


def check_one_group(folders: Sequence[Path]) -> None:
    """Raise ``InputError`` if instances of a study are of several sizes or repeats, each of which is an entry."""
    groups = {(folder.parent, match[1]) for folder in folders if (match := INSTANCE.fullmatch(folder.name))}
    if len(groups) > 1:
        parent, name = min(groups)
        raise InputError(
            f"--throughput: these are instances of {len(groups)} sizes and repeats; give those of one, such as "
            f"{parent / name}-i*"
        )


def run_folders(path: Path) -> list[Path]:
    """The run folder ``path``, or those of the study in it."""
    if (path / "study.json").is_file():
        folders = sorted(folder for folder in (path / "runs").glob("*") if folder.is_dir())
        if not folders:
            raise InputError(f"the study in {path} has no run yet; start it, or give run folders")
        return folders
    RunFolder.open(path)
    return [path]


def read_run(folder: Path) -> SubmittedRun:
    """A run that ended. Raises ``InputError`` if its application is not a benchmark of MLPerf HPC."""
    run = RunFolder.open(folder, needs=("config.yaml", "mllog.txt", "summary.json", "system.json"))
    summary = run.read_summary()
    if find_application(summary.application).benchmark not in RUNS:
        known = ", ".join(sorted(RUNS))
        raise InputError(f"{folder} is a run of {summary.application}, which is no benchmark of MLPerf HPC ({known})")
    return SubmittedRun(
        run, summary, read_own_run(LogLocation(run.mllog, "own")), read_yaml(run.config), mapping(run.system),
        mapping(run.environment), mapping(run.path / "job.json"),
    )  # fmt: skip


def mapping(path: Path) -> dict[str, Any]:
    """What a JSON file of a run holds; empty if there is none. Raises ``DataError`` for a damaged one."""
    if not path.exists():
        return {}
    advice = "restore it, or leave the run out"
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path, f"cannot be read ({error})", advice) from None
    if not is_within(content, MOST_LEVELS):
        raise DataError(path, f"has more than {MOST_LEVELS} levels within one another", advice)
    return content if isinstance(content, dict) else {}


def group_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The group ``name`` of what a file of a run holds; empty if it has none, or something else in its place."""
    group = values.get(name)
    return dict(group) if isinstance(group, Mapping) else {}
