"""Runs of a study that one job makes, side by side: what the job's record says of them.

The record (``job.json``) is written before the job is submitted, so that the runs are known to belong to this job
wherever the command that submits it is killed.
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
    """The runs of one job, which lies in ``STUDY/jobs/NUMBER``; their folders are ``STUDY/runs/NAME``."""

    words: Mapping[str, tuple[str, ...]]
    """By name: what follows ``hpcbench train``, run folder and threads apart."""
    side_by_side: int = field(metadata=within(1, MOST_PER_NODE))
    """Runs at once; the others follow as places become free."""
    processes: int = field(default=1, metadata=within(1, MOST_RANKS))
    """Of each run."""
    gpus: int = field(default=0, metadata=within(0, MOST_RANKS))
    """Accelerators of each run."""
    keep: bool = False
    """Whether runs that are done keep their checkpoints and large files."""
    launchers: tuple[tuple[str, ...], ...] = ()
    """What starts the ranks of each of the runs side by side, on nodes of its own; unset: all share the job's node."""
    cores: int = field(default=0, metadata=within(0, MOST_PER_NODE))
    """Of each process, where there are launchers."""
    further_words: tuple[str, ...] = ()
    """What every attempt of a run is asked beside ``words``."""

    def as_dict(self) -> dict[str, Any]:
        """As the record of the job has it."""
        return asdict(self)


@dataclass(frozen=True)
class _Record:
    packed_runs: PackedRuns | None = None


def packed_runs(folder: Path, record: str = "job.json") -> PackedRuns | None:
    """The runs that the job in ``folder`` packs; ``None`` where it is a job of one run, or there is none.

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
