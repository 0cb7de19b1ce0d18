"""Runs that stage their data: the same numbers as without, whatever the form."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.results.run_folder import RunFolder
from tests.staging.spoiled import spoil

Train = Callable[..., int]


def steps(folder: Path) -> pd.DataFrame:
    return RunFolder.open(folder).read_steps()


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["gunzip", "tfrecord-to-npy"])
def test_data_transformed_on_the_way_train_the_same(train: Train, tmp_path: Path, transform: str) -> None:
    assert train(tmp_path / "direct", "--train.max_epochs", "1") == 0
    staged = ("--staging.destination", str(tmp_path / "{node}"), "--staging.transform", transform)
    assert train(tmp_path / "staged", "--train.max_epochs", "1", *staged) == 0
    assert (steps(tmp_path / "direct")["loss"] == steps(tmp_path / "staged")["loss"]).all()
    report = json.loads((tmp_path / "staged" / "staging.json").read_text())
    assert report["bytes_landed"] > 2 * report["bytes_read"]


@pytest.mark.parametrize(
    ("transform", "words"),
    [("gunzp", "transform 'gunzp' is not known"), ("hdf5-to-npy", "cosmoflow cannot read what staging.transform")],
)
def test_a_transform_that_leads_nowhere_is_refused_first(
    train: Train, tmp_path: Path, transform: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.transform", transform)
    assert train(tmp_path / "run", *staged) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "local").exists()


def test_staged_data_train_the_same(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "direct", "--train.max_epochs", "1") == 0
    staged = tmp_path / "local"
    assert train(tmp_path / "staged", "--train.max_epochs", "1", "--staging.destination", str(staged)) == 0
    assert (steps(tmp_path / "direct")["loss"] == steps(tmp_path / "staged")["loss"]).all()
    report = json.loads((tmp_path / "staged" / "staging.json").read_text())
    assert report["files"] == 34
    assert report["bytes_landed"] == sum(path.stat().st_size for path in staged.rglob("*.tfrecord"))
    assert RunFolder.open(tmp_path / "staged").read_summary().phases_s["staging"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [(), ("--staging.overlap", "true", "--train.local_batch_size", "2")], ids=["", "overlap"]
)
def test_a_run_repairs_what_an_earlier_one_brought(train: Train, tmp_path: Path, more: tuple[str, ...]) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.transform", "gunzip", *more)
    assert train(tmp_path / "first", "--train.max_epochs", "1", *staged) == 0
    bad = spoil(tmp_path / "local")
    assert train(tmp_path / "again", "--train.max_epochs", "1", *staged, "--staging.repair", "true") == 0
    report = json.loads((tmp_path / "again" / "staging.json").read_text())
    assert sorted(file["name"] for file in report["repaired"]) == bad
    assert report["files"] == 3
    assert (steps(tmp_path / "first")["loss"] == steps(tmp_path / "again")["loss"]).all()


def test_stage_only_stages_what_a_run_would(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.transform", "gunzip")
    assert train(tmp_path / "run", *staged, "--stage-only") == 0
    assert "34 files in" in capsys.readouterr().out
    assert len(list((tmp_path / "local").rglob("*.tfrecord"))) == 34
    assert not (tmp_path / "run").exists()
    assert train(tmp_path / "run", "--stage-only") == 2
    assert "--stage-only needs --staging.destination DIR" in capsys.readouterr().err
