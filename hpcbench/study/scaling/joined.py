"""The convergence study from which a scaling study takes epochs(B): named once, then remembered in its folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder
from hpcbench.study.scaling.definition import Scaling
from staging.errors import InputError

NONE = "none"
"""The value of ``--convergence`` to report without one. A folder of that name is ``./none``."""


def with_convergence(study: Scaling, folder: Path, given: str | None) -> Scaling:
    """The study of ``folder`` with the convergence study ``given``; ``None`` leaves the one that it remembers.

    A relative path is stored relative to the study's folder, so that both can be moved together; an absolute one as is.
    """
    if given is None:
        return study
    if given == NONE:
        return replace(study, convergence=None)
    if Path(given).is_absolute():
        return replace(study, convergence=given)
    return replace(study, convergence=relative(Path(given), folder))


def relative(path: Path, folder: Path) -> str:
    """The path from ``folder`` to ``path``, with all links resolved."""
    return os.path.relpath(path.resolve(), folder.resolve())


def convergence_path(study: Scaling, folder: Path) -> Path | None:
    """Where the convergence study of the study in ``folder`` is."""
    if study.convergence is None:
        return None
    path = Path(study.convergence)
    return path if path.is_absolute() else Path(os.path.relpath(folder.resolve() / path))


def read_convergence(study: Scaling, folder: Path) -> tuple[Study, StudyFolder] | None:
    """The convergence study of the study in ``folder``, if it has one.

    Raises ``InputError`` if it does not exist, or is of another application.
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
    convergence_study = read_study(joined)
    if convergence_study.application != study.application:
        raise InputError(
            f"--convergence {path} is of {convergence_study.application}, this study of {study.application}"
        )
    return convergence_study, joined


def remember(folder: StudyFolder, convergence: str | None) -> None:
    """Write the convergence study that the page of a study joins into ``study.json``."""
    definition = folder.read() or {}
    if definition.get("convergence") != convergence:
        folder.write({**definition, "convergence": convergence})


def keep_in_copy(study: Scaling, folder: Path, copy: StudyFolder) -> None:
    """Let a copy of the study find its convergence study: the one copied along with it, if any, otherwise the same."""
    path = convergence_path(study, folder)
    beside = convergence_path(study, copy.path)
    if path is None or beside is None or StudyFolder(beside).definition.exists():
        return
    if StudyFolder(path).definition.exists():
        remember(copy, relative(path, copy.path))
