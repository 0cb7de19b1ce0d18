"""A study continues with the dataset that its runs had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.data.simulated_set import RECORD
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


def test_data_that_were_simulated_otherwise_are_refused(
    study: Study, folder: StudyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "data" / "cosmoflow"
    dataset(root, 8)
    record = {"application": "cosmoflow", "data": {"sample_size": 32}, "simulate": {"seed": 7}}
    (root / RECORD).write_text(json.dumps(record), encoding="utf-8")
    had = json.dumps(record | {"simulate": {"seed": 2019}})
    statuses = {
        name: replace(state, summary=replace(state.summary, simulated_data=had)) if state.summary else state
        for name, state in read_statuses(study, folder).items()
    }
    with pytest.raises(InputError) as caught:
        check_same_data(study, folder.path, statuses, 4096)
    said = str(caught.value)
    assert said.startswith(
        f"data.root ({root.resolve()}) was simulated with simulate.seed 7, and the data of {folder.runs}/"
    )
    assert said.endswith("with 2019; continue the study in the directory where it began, or give another --study-dir")
    (root / RECORD).write_text(had, encoding="utf-8")
    check_same_data(study, folder.path, statuses, 4096)


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
