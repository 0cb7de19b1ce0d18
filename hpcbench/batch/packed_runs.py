"""Runs of a study that one job makes, side by side: what the job's record says of them.

The record (``job.json``) is written before the job is submitted, so that the runs are known to belong to this job
wherever the command that submits it is killed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from staging.errors import DataError
from staging.formats.regular import read_text


@dataclass(frozen=True)
class PackedRuns:
    """The runs of one job, which lies in ``STUDY/jobs/NUMBER``; their folders are ``STUDY/runs/NAME``."""

    words: Mapping[str, tuple[str, ...]]
    """By name: what follows ``hpcbench train``, run folder and threads apart."""
    side_by_side: int
    """Runs at once; the others follow as places become free."""
    processes: int = 1
    """Of each run."""
    gpus: int = 0
    """Accelerators of each run."""
    keep: bool = False
    """Whether runs that are done keep their checkpoints and large files."""
    launchers: tuple[tuple[str, ...], ...] = ()
    """What starts the ranks of each of the runs side by side, on nodes of its own; unset: all share the job's node."""
    cores: int = 0
    """Of each process, where there are launchers."""
    further_words: tuple[str, ...] = ()
    """What every attempt of a run is asked beside ``words``."""

    def as_dict(self) -> dict[str, Any]:
        """As the record of the job has it."""
        return asdict(self)


def packed_runs(folder: Path, record: str = "job.json") -> PackedRuns | None:
    """The runs that the job in ``folder`` packs; ``None`` where it is a job of one run, or there is none.

    Raises ``DataError`` for a record that is damaged.
    """
    path = folder / record
    try:
        found = json.loads(read_text(path)).get("packed_runs")
        if found is None:
            return None
        words = {str(name): tuple(map(str, each)) for name, each in found["words"].items()}
        launchers = tuple(tuple(map(str, each)) for each in found.get("launchers", ()))
        further = tuple(map(str, found.get("further_words", ())))
        return PackedRuns(**{**found, "words": words, "launchers": launchers, "further_words": further})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(path, f"is damaged ({error})", "ask the scheduler itself") from None


def run_path(job_folder: Path, name: str) -> Path:
    """The folder of a run of the job."""
    return job_folder.absolute().parents[1] / "runs" / name
