"""A study continues with the dataset that its runs had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.study.convergence import check_same_data, read_statuses, resume_study
from hpcbench.study.definition import Study
from hpcbench.study.folder import StudyFolder, held
from hpcbench.study.runner import ExecutionOptions
from staging.errors import InputError
from tests.hpcbench.study.conftest import FakeLauncher, make


def dataset(root: Path, samples: int) -> None:
    """Files that are listed and never read."""
    for split, count in (("train", samples), ("validation", 8)):
        (root / split).mkdir(parents=True)
        for number in range(count):
            (root / split / f"univ_{number:03}.tfrecord").touch()


@pytest.fixture
def folder(study: Study, tmp_path: Path) -> StudyFolder:
    """A finished study, whose runs had 4,096 samples of ``data/cosmoflow``."""
    made = StudyFolder(tmp_path / "study")
    with held(made):
        made.write(study.as_dict())
    make(study, made, FakeLauncher(lambda settings: 5.0))
    return made


@pytest.mark.parametrize("dry_run", [True, False])
def test_another_dataset_of_the_same_name_is_refused(
    folder: StudyFolder, tmp_path: Path, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset(tmp_path / "elsewhere" / "data" / "cosmoflow", 64)
    monkeypatch.chdir(tmp_path / "elsewhere")
    before = folder.definition.read_text(encoding="utf-8")
    with pytest.raises(InputError) as caught:
        resume_study(folder.path, ExecutionOptions(at_once=1, estimate=False), dry_run=dry_run)
    said = str(caught.value)
    assert f"data.root ({Path('data/cosmoflow').resolve()}) gives 64 training samples, and {folder.runs}/b8-sgd" in said
    assert "had 4096; continue the study in the directory where it began, or give another --study-dir" in said
    assert folder.definition.read_text(encoding="utf-8") == before


def test_a_dataset_of_the_same_size_or_elsewhere_and_own_samples_are_accepted(
    study: Study, folder: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = read_statuses(study, folder)
    monkeypatch.chdir(tmp_path)
    check_same_data(study, folder.path, statuses, 64)
    dataset(tmp_path / "data" / "cosmoflow", 64)
    check_same_data(study, folder.path, statuses, 4096)
    own = replace(study, own_settings={"sgd": {"data.train_samples": "4096"}})
    check_same_data(own, folder.path, statuses, 64)
    with pytest.raises(InputError, match="gives 64 training samples"):
        check_same_data(study, folder.path, statuses, 64)
