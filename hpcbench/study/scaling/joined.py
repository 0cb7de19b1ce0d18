"""The convergence study that a scaling study takes epochs(B) from: named once, then remembered in its folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder
from hpcbench.study.scaling.definition import Scaling
from staging.errors import InputError

NONE = "none"
"""What ``--convergence`` is given to report without one. A folder of that name is ``./none``."""


def with_convergence(study: Scaling, folder: Path, given: str | None) -> Scaling:
    """The study of ``folder`` with the convergence study ``given``; ``None`` leaves the one that it remembers.

    A relative path is remembered from the study's folder, so that both can be moved together; an absolute one as it is.
    """
    if given is None:
        return study
    if given == NONE:
        return replace(study, convergence=None)
    if Path(given).is_absolute():
        return replace(study, convergence=given)
    return replace(study, convergence=relative(Path(given), folder))


def relative(path: Path, folder: Path) -> str:
    """The way from ``folder`` to ``path``, where no link is left."""
    return os.path.relpath(path.resolve(), folder.resolve())


def convergence_path(study: Scaling, folder: Path) -> Path | None:
    """Where the convergence study of the study in ``folder`` is."""
    if study.convergence is None:
        return None
    path = Path(study.convergence)
    return path if path.is_absolute() else Path(os.path.relpath(folder.resolve() / path))


def read_convergence(study: Scaling, folder: Path) -> tuple[Study, StudyFolder] | None:
    """The convergence study of the study in ``folder``, if it has one.

    Raises ``InputError`` where it is not there, or is of another application.
    """
    path = convergence_path(study, folder)
    if path is None:
        return None
    from hpcbench.study.convergence import read_study

    joined = StudyFolder(path)
    if not joined.definition.exists():
        raise InputError(
            f"{folder}: its convergence study {path} is not there; name it with --convergence DIR, or report without: "
            f"--convergence {NONE}"
        )
    found = read_study(joined)
    if found.application != study.application:
        raise InputError(f"--convergence {path} is of {found.application}, this study of {study.application}")
    return found, joined


def remember(folder: StudyFolder, convergence: str | None) -> None:
    """Write into ``study.json`` which convergence study the page of a study joins."""
    found = folder.read() or {}
    if found.get("convergence") != convergence:
        folder.write({**found, "convergence": convergence})


def keep_in_copy(study: Scaling, folder: Path, copy: StudyFolder) -> None:
    """Let a copy of the study find the convergence study: beside the copy where one was copied, too, else the same."""
    path = convergence_path(study, folder)
    beside = convergence_path(study, copy.path)
    if path is None or beside is None or StudyFolder(beside).definition.exists():
        return
    if StudyFolder(path).definition.exists():
        remember(copy, relative(path, copy.path))
