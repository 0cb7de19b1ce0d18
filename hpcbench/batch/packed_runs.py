"""Runs of a study that one job makes, side by side: what the job's record says about them.

The record (``job.json``) is written before the job is submitted, so that the runs are known to belong to this job
whenever the submitting command is killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcbench.config.bounds import within
from hpcbench.config.json_record import read_record
from hpcbench.config.schema import MOST_RANKS
from staging.number_options import MOST_PER_NODE


@dataclass(frozen=True)
class PackedRuns:
    """The runs of one job, whose folder is ``STUDY/jobs/NUMBER``; their folders are ``STUDY/runs/NAME``."""

    words: Mapping[str, tuple[str, ...]]
    """By run: the words after ``hpcbench train``, except run folder and threads."""
    side_by_side: int = field(metadata=within(1, MOST_PER_NODE))
    """Runs at once; the others follow as slots become free."""
    processes: int = field(default=1, metadata=within(1, MOST_RANKS))
    """Processes of each run."""
    gpus: int = field(default=0, metadata=within(0, MOST_RANKS))
    """Accelerators of each run."""
    keep: bool = False
    """Whether runs that are done keep their checkpoints and large files."""
    launchers: tuple[tuple[str, ...], ...] = ()
    """For each of the runs side by side, what starts its ranks on its own nodes; unset: all share the job's node."""
    cores: int = field(default=0, metadata=within(0, MOST_PER_NODE))
    """Cores of each process, if there are launchers."""
    further_words: tuple[str, ...] = ()
    """Words for every attempt of a run, besides ``words``."""

    def as_dict(self) -> dict[str, Any]:
        """As the record of the job has it."""
        return asdict(self)


@dataclass(frozen=True)
class _Record:
    packed_runs: PackedRuns | None = None


def packed_runs(folder: Path, record: str = "job.json") -> PackedRuns | None:
    """The runs that the job in ``folder`` packs; ``None`` if it is a job of one run, or if there is no job.

    Raises ``DataError`` for a record that is damaged.
    """
    path = folder / record
    try:
        return read_record(_Record, path, "ask the scheduler itself").packed_runs
    except FileNotFoundError:
        return None


def run_path(job_folder: Path, name: str) -> Path:
    """The folder of a run of the job."""
    return job_folder.absolute().parents[1] / "runs" / name
