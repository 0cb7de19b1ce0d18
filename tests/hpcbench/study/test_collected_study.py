"""A collected study: the same study in a folder of its own."""

from __future__ import annotations

import errno
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.study.collect import collect
from hpcbench.study.convergence import read_statuses, report
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder, held
from staging.errors import InputError
from tests.hpcbench.study.conftest import FakeLauncher, make
from tests.hpcbench.study.test_page import made

__all__ = ["made"]


@pytest.mark.slow
def test_a_collected_study_is_the_same_study(made: tuple[Study, StudyFolder], tmp_path: Path) -> None:
    study, folder = made
    copy = StudyFolder(tmp_path / "copy")
    assert collect(folder, copy.path) == collect(folder, copy.path) == 16
    assert {name: each.status for name, each in read_statuses(study, copy).items()} == {
        name: each.status for name, each in read_statuses(study, folder).items()
    }
    assert not list(copy.path.rglob("environment.json")), "it names the host and its paths"
    assert sum(path.stat().st_size for path in copy.runs.rglob("*") if path.is_file()) < 16 * 6144
    report(copy)
    assert copy.table.read_text(encoding="utf-8") == folder.table.read_text(encoding="utf-8")


def test_a_run_of_a_search_leaves_out_what_no_page_reads(study: Study, tmp_path: Path) -> None:
    searching = replace(study, batch_sizes=(8,), optimizers=("sgd",), seeds=1, lr_search=(0.5, 1.0, 2.0))
    folder, copy = StudyFolder(tmp_path / "study"), StudyFolder(tmp_path / "copy")
    with held(folder):
        folder.write(searching.as_dict())
    make(searching, folder, FakeLauncher(lambda settings: 5.0))
    recorded = ("noise_scale.csv", "trust_ratios.csv")
    for run in folder.runs.iterdir():
        for name in recorded:
            (run / name).touch()
    collect(folder, copy.path)
    names = [run.name for run in copy.runs.iterdir()]
    seeds = [name for name in names if "-seed" in name]
    assert (len(seeds), len(names) > 3) == (1, True)
    assert all((copy.run(name) / file).exists() == (name in seeds) for name in names for file in recorded)


def test_a_failed_run_that_was_retried_is_what_it_became(study: Study, tmp_path: Path) -> None:
    one = replace(study, batch_sizes=(8,), optimizers=("sgd",), seeds=1)
    folder, copy = StudyFolder(tmp_path / "study"), StudyFolder(tmp_path / "copy")
    with held(folder):
        folder.write(one.as_dict())
    make(one, folder, FakeLauncher(lambda settings: math.nan))
    collect(folder, copy.path)
    assert [each.status for each in read_statuses(one, copy).values()] == ["failed"]
    make(one, folder, FakeLauncher(lambda settings: 5.0), retry=True)
    collect(folder, copy.path)
    assert [each.status for each in read_statuses(one, copy).values()] == ["reached"]


def test_a_copy_goes_into_a_folder_of_its_own(made: tuple[Study, StudyFolder], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match="is not empty and holds no study; give a new folder with --out"):
        collect(made[1], tmp_path)
    with pytest.raises(InputError, match="is the study itself; give another folder"):
        collect(made[1], made[1].path)


def test_a_copy_goes_into_no_file(study: Study, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "copy"):
        with pytest.raises(
            InputError, match=rf"--out {out} cannot be written \(Not a directory\); give another folder"
        ):
            collect(StudyFolder(tmp_path / "study"), out)


def test_what_is_no_run_is_not_collected(study: Study, tmp_path: Path) -> None:
    """A file that a file browser left, and a study without runs."""
    folder, copy = StudyFolder(tmp_path / "study"), StudyFolder(tmp_path / "copy")
    with held(folder):
        folder.write(study.as_dict())
    (folder.runs / ".DS_Store").touch()
    assert collect(folder, copy.path) == 0
    (folder.runs / ".DS_Store").unlink()
    folder.runs.rmdir()
    assert collect(folder, copy.path) == 0
    assert copy.definition.exists()


def test_a_full_disk_is_one_line(
    made: tuple[Study, StudyFolder], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", full)
    assert main(["study", "collect", str(made[1].path), "--out", str(tmp_path / "copy")]) == 2
    said = f"hpcbench: error: --out {tmp_path / 'copy'} cannot be written (No space left on device); free some space"
    assert said in capsys.readouterr().err


def test_a_copy_needs_a_place(made: tuple[Study, StudyFolder], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "collect", str(made[1].path)]) == 2
    assert "the following arguments are required: --out" in capsys.readouterr().err
    assert main(["study", "status", str(made[1].path)]) == 0
    assert "runs: 12 reached, 2 missed, 2 diverged, 0 left" in capsys.readouterr().out
