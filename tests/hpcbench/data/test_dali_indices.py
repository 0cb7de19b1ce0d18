"""Indices of TFRecords for DALI: staged, verified, and told where they are wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hpcbench.data import dali_loader
from hpcbench.data.dali_samples import check_index, index_file
from hpcbench.data.files import dataset_files
from hpcbench.data.loader import open_loader
from hpcbench.train.build import open_data
from staging.errors import DataError
from tests.hpcbench.data.test_dali_loader import SETS, TRAINING, VALIDATION, configured, needs_dali, roots, simulate

__all__ = ["roots"]


@needs_dali
@pytest.mark.parametrize("text", ["7 32768\n", "0 40\n40 32794\n", "nothing\n", "0 32\n"])
def test_a_wrong_index_never_moves_samples(text: str, tmp_path: Path) -> None:
    simulate("cosmoflow", tmp_path, SETS["cosmoflow-tfrecord"][1])
    for path in tmp_path.glob("*/*.tfrecord"):
        index_file(path).write_text(f"0 {path.stat().st_size}\n")
    application, config = configured("cosmoflow-tfrecord", tmp_path)
    training, _ = open_data(application, config)
    index_file(training.files[4]).write_text(text)
    loader = open_loader(application, config, "train", training, 2, torch.device("cpu"))
    with pytest.raises(DataError, match=re.escape(index_file(training.files[4]).name)):
        list(loader.load([np.array([3, 4]), np.array([5])]))


@pytest.mark.slow
def test_a_missing_index_is_named_with_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, roots: dict[str, Path]
) -> None:
    monkeypatch.setattr(dali_loader, "has_dali", lambda: True)
    simulate("cosmoflow", tmp_path / "data", SETS["cosmoflow-tfrecord"][1])
    application, config = configured("cosmoflow-tfrecord", tmp_path / "data")
    files = sorted((tmp_path / "data/train").glob("*.tfrecord"))
    for path in files[:-1]:
        index_file(path).write_text("")
    with pytest.raises(DataError, match=rf"{files[-1].name}: has no index .*--staging.transform tfrecord-index"):
        open_data(application, config)


def test_indices_are_staged_and_verified_with_their_files(roots: dict[str, Path]) -> None:
    application, config = configured("cosmoflow-tfrecord", roots["cosmoflow-tfrecord"])
    files = dataset_files(application, config)
    assert len(files) == 2 * (TRAINING + VALIDATION)
    for path in files:
        application.module("data").check_file(path, config)
    config.data.loader = "torch"
    assert len(dataset_files(application, config)) == TRAINING + VALIDATION


@pytest.mark.parametrize(("text", "said"), [
    ("0 99\n", r"says \(0, 99\) where one of offset and size \(0, 100\) is expected"),
    ("0 50\n50 50\n", "says 2 records"),
    ("", "says 0 records"),
    ("zero\n", "is not an index"),
    ("0\n", "is not an index"),
    ("\xff", "is not an index"),
    (None, "cannot be read"),
])  # fmt: skip
def test_a_wrong_index_is_told(text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(bytes(100))
    if text is not None:
        index_file(path).write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=said):
        check_index(index_file(path))
