"""The folder of a study while somebody works in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcbench.study.folder import StudyFolder, begun, held
from staging.errors import InputError


def fail(folder: StudyFolder, remove: bool) -> None:
    """Work in the folder, of which nothing is left where it is removed, until the first run fails."""
    with held(folder), begun(folder, {"mode": "any"}, lambda: None):
        if remove:
            shutil.rmtree(folder.path)
        raise InputError("the first run")


def test_a_folder_that_is_removed_meanwhile_hides_no_error(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    with pytest.raises(InputError, match="the first run"):
        fail(folder, remove=True)
    assert not folder.path.exists()


def test_a_folder_in_which_nothing_began_is_removed(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    with pytest.raises(InputError, match="the first run"):
        fail(folder, remove=False)
    assert not folder.path.exists()
