"""The run folders among the paths that a shell makes of a pattern such as ``runs/*``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from staging.print_line import print_line


def ended_runs(paths: Sequence[Path]) -> list[Path]:
    """``paths`` without what earlier reports left, and without runs that have no summary yet; prints a line for these.

    Returns all of ``paths`` if nothing would be left, so that their reader says what is wrong.
    """
    others = [path for path in paths if not is_of_a_report(path)]
    waiting = [path for path in others if path.is_dir() and has_not_ended(path)]
    left = [path for path in others if path not in waiting]
    if not left:
        return list(paths)
    for path in waiting:
        print_line(f"{path} is left out: its run has not ended")
    return left


def is_of_a_report(path: Path) -> bool:
    """Whether a path is a page that compares runs, or the folder of its plots; both are beside the runs."""
    return path.is_file() if path.suffix == ".html" else path.name == "figures" and path.is_dir()


def has_not_ended(folder: Path) -> bool:
    """Whether a folder belongs to a job or a run, and has no summary."""
    return not (folder / "summary.json").exists() and any(
        (folder / name).exists() for name in ("job.json", "config.yaml")
    )
