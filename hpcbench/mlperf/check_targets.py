"""What there is to check at a path (logs, folders of runs, and trees of organizations), and under which ruleset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcbench.mlperf.find_logs import refuse_unreadable, round_of
from hpcbench.mlperf.official_score import LOGS
from hpcbench.mlperf.package_check import MODES, sub_folders
from hpcbench.mlperf.rulesets import WITHOUT, round_around, ruleset_of_round
from staging.errors import InputError

Kind = Literal["log", "folder", "organization"]


@dataclass(frozen=True)
class Target:
    """Something that gets a verdict of its own."""

    path: Path
    kind: Kind
    """``log``: a file. ``folder``: the runs of an entry. ``organization``: the tree of a submission."""
    round: str | None
    """The round whose folder it lies in, by name."""

    @property
    def without_runs(self) -> bool:
        """Whether it is the tree of an organization without a log."""
        return self.kind == "organization" and not any(self.path.glob(f"results/*/*/*/{LOGS}"))

    @property
    def without_rules(self) -> bool:
        """Whether there are no official rules for its round."""
        return self.round == WITHOUT

    @property
    def ruleset(self) -> str | None:
        """The ruleset of its round."""
        return ruleset_of_round(self.round)


def targets_of(path: Path) -> list[Target]:
    """List what there is to check at ``path``. Raises ``InputError`` for nothing, or a folder that cannot be read."""
    if not path.exists():
        raise InputError(f"{path} does not exist; give a run folder, a log, or a folder of a round")
    # Globbing passes over a folder that cannot be listed: its runs would go unchecked without a word.
    for _ in os.walk(path, onerror=refuse_unreadable) if path.is_dir() else ():
        pass
    targets = list(targets_below(path))
    if all(target.without_runs for target in targets):
        raise InputError(f"{path} holds no mllog.txt and no {LOGS}; give a run folder, a log, or a folder of a round")
    return targets


def targets_below(path: Path) -> Iterator[Target]:
    """Like ``targets_of``, but does not raise; links to folders are not followed."""
    if path.is_file():
        yield Target(path, "log", round_around(path) if "results" in path.absolute().parts else None)
    elif (path / "mllog.txt").is_file():
        yield Target(path / "mllog.txt", "log", None)
    elif is_organization(path):
        yield Target(path, "organization", round_of(path.absolute().parent.name))
    elif any(path.glob(LOGS)):
        yield Target(path, "folder", round_around(path) if "results" in path.absolute().parts else None)
    else:
        for folder in sub_folders(path):
            if not folder.is_symlink():
                yield from targets_below(folder)


def is_organization(path: Path) -> bool:
    """Whether ``path`` is the tree of a submission, ``results/SYSTEM/{strong,weak}/BENCHMARK`` within it.

    A tree of v0.7 is not one: it has no folders strong and weak, and the official checker skips all its runs.
    """
    return any((system / mode).is_dir() for system in sub_folders(path / "results") for mode in MODES)
