"""Listing of a dataset folder."""

from pathlib import Path

import pytest

from staging.atomic import replacing
from staging.errors import DataError
from staging.files import list_samples

HINT = "set data.root to the dataset, or make one with `hpcbench data simulate`"


def test_samples_are_sorted_and_nothing_else_is_listed(tmp_path: Path) -> None:
    for name in ("b_010.tfrecord", "b_002.tfrecord", "a_100.tfrecord", "a.npy", ".hidden.tfrecord", "x.tfrecord.gz"):
        (tmp_path / name).touch()
    with replacing(tmp_path / "c.tfrecord") as temporary:
        temporary.touch()
        names = [path.name for path in list_samples(tmp_path, ".tfrecord")]
    assert names == ["a_100.tfrecord", "b_002.tfrecord", "b_010.tfrecord"]
    assert all(path.parent == tmp_path for path in list_samples(tmp_path, ".tfrecord"))


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        list_samples(tmp_path / "train", ".tfrecord")
    assert str(error.value) == f"{tmp_path}/train: no such folder; {HINT}"


def test_a_file_where_a_folder_is_expected(tmp_path: Path) -> None:
    (tmp_path / "train").touch()
    with pytest.raises(DataError, match="train: is not a folder; set "):
        list_samples(tmp_path / "train", ".tfrecord")


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "a.h5").touch()
    with pytest.raises(DataError) as error:
        list_samples(tmp_path, ".tfrecord")
    assert str(error.value) == f"{tmp_path}: holds no file named *.tfrecord; {HINT}"


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("staging.files.os.scandir", refuse)
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\); check its permissions"):
        list_samples(tmp_path, ".tfrecord")
