"""Power logs of a submission: those that ``measure.power`` left in the run folders, or that a site put there.

One for each node: ``power/node_<j>.txt`` in the run folder, ``power/result_<i>/node_<j>.txt`` in the submission
(MLPerf training policies, power measurement).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcbench.measure.power_log import COVERS, POWER, READING, SOURCE, START, STOP
from hpcbench.results.mllog_reader import MARK
from hpcbench.submission.scrub import Scrubber
from staging.formats.regular import read_text

LEAST_READINGS = 60
"""The rules ask for at least this many readings in the timed region."""


@dataclass(frozen=True)
class NodePower:
    """What a power log of one node holds."""

    readings: int
    """Number of readings between its start and its stop."""
    ended: bool
    """Whether it has its ``power_measurement_stop``."""
    covers: str
    """The parts of the node that it covers, according to ``measure.power``; empty in other logs."""
    source: str

    @classmethod
    def read(cls, path: Path) -> NodePower:
        """Read the log at ``path``. Raises ``OSError``."""
        lines = list(entries(read_text(path, encoding="utf-8", errors="replace")))
        keys = [entry.get("key") for entry in lines]
        begun = keys.index(START) if START in keys else len(keys)
        end = keys.index(STOP) if STOP in keys else len(keys)
        told = lines[begun].get("metadata") if begun < len(keys) else None
        told = told if isinstance(told, dict) else {}
        return cls(
            keys[begun:end].count(READING), STOP in keys, str(told.get(COVERS, "")), str(told.get(SOURCE, ""))
        )  # fmt: skip


def entries(text: str) -> Iterator[dict[str, Any]]:
    """The entries of a log; other lines are skipped."""
    for line in text.splitlines():
        _, mark, entry = line.partition(MARK)
        try:
            record = json.loads(entry) if mark else None
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def power_of(folder: Path) -> list[NodePower]:
    """The power log of each node of the run in ``folder``; empty if there are none."""
    return [NodePower.read(path) for path in logs_of(folder / POWER)]


def logs_of(folder: Path) -> list[Path]:
    """The logs of nodes in ``folder``, in the order of their numbers."""
    paths = [path for path in folder.glob("node_*.txt") if path.stem.removeprefix("node_").isdecimal()]
    return sorted(paths, key=lambda path: int(path.stem.removeprefix("node_")))


def copy_power(source: Path, folder: Path, scrub: Scrubber) -> None:
    """Copy the logs of a run's nodes, numbered from 0."""
    folder.mkdir(parents=True)
    for number, path in enumerate(logs_of(source)):
        text = scrub.log(read_text(path, encoding="utf-8", errors="replace"), {}, path)
        (folder / f"node_{number}.txt").write_text(text, encoding="utf-8")
