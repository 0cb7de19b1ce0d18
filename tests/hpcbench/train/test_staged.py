"""Runs that stage their data: the same numbers as without, whatever the form and the moment of arrival."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcbench.results.run_folder import RunFolder
from staging.errors import DataError
from staging.source.sources import FileReader

Train = Callable[..., int]


def steps(folder: Path) -> pd.DataFrame:
    return RunFolder.open(folder).read_steps()


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


def test_data_that_arrive_under_the_first_epoch_train_the_same(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slowly, so that the epoch has to wait; the order of samples does not change for it."""
    assert train(tmp_path / "direct", "--train.max_epochs", "2") == 0
    read = FileReader.read_into

    def late(self: FileReader, *words: Any) -> None:
        time.sleep(0.05)
        read(self, *words)

    monkeypatch.setattr(FileReader, "read_into", late)
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap", "--staging.threads", "1")
    assert train(tmp_path / "staged", "--train.max_epochs", "2", *staged) == 0
    assert (steps(tmp_path / "direct")["loss"] == steps(tmp_path / "staged")["loss"]).all()
    report = json.loads((tmp_path / "staged" / "staging.json").read_text())
    assert report["files"] == 34
    assert report["exposed_s"] > 0.5
    summary = RunFolder.open(tmp_path / "staged").read_summary()
    assert summary.phases_s["staging"] == pytest.approx(report["exposed_s"], abs=0.2)
    assert sum(summary.phases_s.values()) == pytest.approx(summary.wall_s, rel=0.01)
    log = (tmp_path / "staged" / "mllog.txt").read_text()
    keys = ("staging_start", "epoch_start", "staging_stop", "epoch_stop")
    assert sorted(keys, key=log.index) == list(keys)


def test_stage_only_stages_what_a_run_would(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.transform", "gunzip")
    assert train(tmp_path / "run", *staged, "--stage-only") == 0
    assert "34 files in" in capsys.readouterr().out
    assert len(list((tmp_path / "local").rglob("*.tfrecord"))) == 34
    assert not (tmp_path / "run").exists()
    assert train(tmp_path / "run", "--stage-only") == 2
    assert "--stage-only needs --staging.destination DIR" in capsys.readouterr().err


def test_a_source_that_fails_under_the_first_epoch_ends_the_run(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def vanished(self: FileReader, *words: Any) -> None:
        raise DataError("train/x", "vanished from the source")

    monkeypatch.setattr(FileReader, "read_into", vanished)
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap")
    assert train(tmp_path / "run", *staged) == 2
    assert "train/x: vanished from the source" in capsys.readouterr().err
    assert RunFolder.open(tmp_path / "run").read_summary().status == "aborted"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("--staging.timed", "false"), "staging.overlap stages inside the scored time; set staging.timed true"),
        (("--staging.transform", "gunzip"), "staging.overlap does not go with staging.transform"),
        (("--data.loader", "dali"), "staging.overlap does not go with data.loader dali"),
        (("--staging.destination", ""), "staging.overlap needs staging.destination"),
    ],
)
def test_what_cannot_overlap_is_refused(
    train: Train, tmp_path: Path, settings: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap")
    assert train(tmp_path / "run", *staged, *settings) == 2
    assert words in capsys.readouterr().err
    assert not any((tmp_path / name).exists() for name in ("local", "run"))
