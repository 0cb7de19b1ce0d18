"""A study keeps to what its preset said when it began, whatever a later version says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcbench.application import Application, find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.study.convergence import report
from hpcbench.study.definition import Study, grow
from hpcbench.study.folder import StudyFolder
from hpcbench.study.gains.definition import Gains
from hpcbench.study.preset_values import compare_presets, preset_values, refuse_changed_preset, study_config
from hpcbench.study.request import flat
from hpcbench.study.results import fixed_settings
from hpcbench.study.scaling.definition import Scaling
from staging.errors import InputError
from tests.hpcbench.study.conftest import FakeLauncher, make

PRESETS = [(name, preset) for name in ("cosmoflow", "deepcam") for preset in ("smoke", "laptop", "study", "mlperf")]


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_recorded_preset_configures_as_the_preset_itself(study: Study, name: str, preset: str) -> None:
    """Also with another optimizer, which takes away the options of the preset's own."""
    application = find_application(name)
    recorded = replace(
        study, application=name, preset=preset, preset_values=preset_values(application, preset)
    )  # fmt: skip
    recorded = Study.from_dict(json.loads(json.dumps(recorded.as_dict())), Path("study.json"))
    for settings in ({}, {"optim.name": "lars", "optim.lr": "0.5"}, {"train.target": "0.3"}):
        assert flat(study_config(recorded, settings)) == flat(resolve(application, preset, None, settings))


def test_what_is_recorded_wins_over_the_preset_of_today(study: Study) -> None:
    old = preset_values(find_application("cosmoflow"), "smoke") | {
        "train.max_epochs": 77, "train.evaluations_per_epoch": 3, "optim.max_grad_norm": 2.5,
    }  # fmt: skip
    recorded = replace(study, preset_values=old)
    train = fixed_settings(recorded).train
    assert (train.max_epochs, train.evaluations_per_epoch) == (77, 3)
    assert study_config(recorded, {}).optim.max_grad_norm == 2.5
    assert study_config(recorded, {"optim.name": "lars"}).optim.max_grad_norm is None
    assert study_config(recorded, {"train.max_epochs": "5"}).train.max_epochs == 5


def test_a_setting_that_is_gone_is_left_out(study: Study) -> None:
    recorded = replace(study, preset_values={"train.max_epochs": 7, "train.was_renamed": 1, "gone.altogether": 2})
    assert study_config(recorded, {}).train.max_epochs == 7


def test_differences_are_found_in_both_directions_and_none_with_an_earlier_version() -> None:
    assert compare_presets({"a.b": 1, "a.c": 2}, {"a.b": 1, "a.d": [3]}) == [
        ("a.c", 2, "unset"),
        ("a.d", "unset", [3]),
    ]
    assert compare_presets({}, {"a.b": 1}) == compare_presets({"a.b": 1}, {}) == []


@pytest.mark.parametrize("kind", [Study, Scaling, Gains])
def test_every_kind_of_study_records_it(kind: Any) -> None:
    assert kind.__dataclass_fields__["preset_values"].type == "Mapping[str, Any]"


@pytest.fixture
def begun(study: Study, tmp_path: Path) -> tuple[Study, StudyFolder]:
    """A study that is done, of a preset that had another target."""
    old = preset_values(find_application("cosmoflow"), "smoke") | {"train.target": 0.77}
    folder = StudyFolder(tmp_path / "study")
    folder.path.mkdir()
    recorded = replace(study, preset_values=old)
    folder.write(recorded.as_dict())
    make(recorded, folder, FakeLauncher(lambda _: 5))
    return recorded, folder


@pytest.mark.slow
def test_a_study_of_another_preset_is_reported_and_not_continued(
    begun: tuple[Study, StudyFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = begun
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    for more in ([], ["--dry-run"]):
        assert main(["study", "resume", str(folder.path), *more]) == 2
        said = capsys.readouterr().err
        assert "began when preset 'smoke' had train.target 0.77, and now it has 0.46; continue with the version" in said
        assert len(said.strip().splitlines()) == 1
    assert {path: path.read_bytes() for path in before} == before
    report(folder)
    assert "sgd" in folder.table.read_text(encoding="utf-8")


def test_a_command_for_a_study_of_another_preset_is_refused(begun: tuple[Study, StudyFolder], study: Study) -> None:
    recorded, folder = begun
    today = replace(study, preset_values=preset_values(find_application("cosmoflow"), "smoke"))
    with pytest.raises(InputError, match=r"its preset's train.target is 0.77, this one's 0.46; give another"):
        grow(recorded, today, folder.path)
    assert grow(recorded, recorded, folder.path).preset_values == recorded.preset_values
    assert grow(study, today, folder.path).preset_values == {}, "of an earlier version: what it had is not known"


def test_an_unchanged_preset_is_no_obstacle(study: Study, tmp_path: Path) -> None:
    application: Application = find_application("cosmoflow")
    refuse_changed_preset(replace(study, preset_values=preset_values(application, "smoke")), tmp_path)
    refuse_changed_preset(study, tmp_path)
