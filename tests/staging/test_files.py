"""Listing of a dataset folder."""

import shutil
from pathlib import Path

import pytest

from staging.atomic import replacing
from staging.errors import DataError
from staging.files import coming, expected_files, list_samples
from staging.landing.sinks import Landed
from staging.ledger.journal import Journal
from staging.ledger.manifest import Manifest
from staging.ranks.world import Alone
from tests.staging.begun import begin

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


def staged(tmp_path: Path) -> Path:
    """A folder that was staged with a.npy and b.npy of three bytes."""
    (tmp_path / "train").mkdir(parents=True)
    for name in ("train/a.npy", "train/b.npy"):
        (tmp_path / name).write_bytes(b"abc")
    Manifest.open(tmp_path, {}).append([Landed(name, 3, -1, name, 0) for name in ("train/b.npy", "train/a.npy")])
    return tmp_path / "train"


def test_a_staged_folder_holds_what_its_manifest_names(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    (folder / "stale.npy").write_bytes(b"abc")
    (folder / "sub.npy").mkdir()
    assert list_samples(folder, ".npy") == [folder / "a.npy", folder / "b.npy"]


def test_the_manifest_is_found_from_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(staged(tmp_path))
    (tmp_path / "train/stale.npy").touch()
    assert list_samples(Path(), ".npy") == [Path("a.npy"), Path("b.npy")]


def test_the_manifest_is_found_through_a_link(tmp_path: Path) -> None:
    folder = staged(tmp_path / "dst")
    (folder / "stale.npy").touch()
    (tmp_path / "set").symlink_to(folder)
    assert [path.name for path in list_samples(tmp_path / "set", ".npy")] == ["a.npy", "b.npy"]


def test_the_manifest_is_found_however_far_above(tmp_path: Path) -> None:
    folder = tmp_path / "dst/a/b/c/d/e/train"
    folder.mkdir(parents=True)
    (folder / "a.npy").write_bytes(b"abc")
    (folder / "stale.npy").touch()
    Manifest.open(tmp_path / "dst", {}).append([Landed("a/b/c/d/e/train/a.npy", 3, -1, "a", 0)])
    assert list_samples(folder, ".npy") == [folder / "a.npy"]


@pytest.mark.parametrize("link", ["train", "train/deep"])
def test_a_link_in_the_place_of_a_staged_folder(tmp_path: Path, link: str) -> None:
    (tmp_path / "other/deep").mkdir(parents=True)
    (tmp_path / "other/deep/a.npy").write_bytes(b"xyz")
    folder = tmp_path / "dst/train/deep"
    folder.mkdir(parents=True)
    (folder / "a.npy").write_bytes(b"abc")
    Manifest.open(tmp_path / "dst", {}).append([Landed("train/deep/a.npy", 3, -1, "a", 0)])
    (tmp_path / "way").symlink_to(tmp_path / "dst")  # as the destination may be
    assert list_samples(tmp_path / "way/train/deep", ".npy") == [tmp_path / "way/train/deep/a.npy"]
    shutil.rmtree(tmp_path / "dst" / link)
    (tmp_path / "dst" / link).symlink_to(tmp_path / "other" if link == "train" else tmp_path / "other/deep")
    for named in (folder, tmp_path / "way/train/deep", tmp_path / "way/train/deep/../deep"):
        with pytest.raises(DataError) as error:
            list_samples(named, ".npy")
        said = f"lies behind a link below {tmp_path}/dst, where staging puts none; remove the link, and stage again"
        assert str(error.value) == f"{named}: {said}"


def test_a_staged_file_that_is_missing_or_altered(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    (folder / "b.npy").write_bytes(b"ab")
    with pytest.raises(DataError) as error:
        list_samples(folder, ".npy")
    said = "was staged with 3 bytes, and is now missing or of another size; stage it again"
    assert str(error.value) == f"{folder}/b.npy: {said}"
    (folder / "b.npy").unlink()
    with pytest.raises(DataError, match=said):
        list_samples(folder, ".npy")


def test_a_staged_folder_without_a_staged_sample(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    (folder / "c.h5").touch()
    with pytest.raises(DataError) as error:
        list_samples(folder, ".h5")
    assert str(error.value) == f"{folder}: holds no staged file named *.h5; {HINT}"


def test_a_staging_that_was_killed_is_no_dataset(tmp_path: Path) -> None:
    folder = staged(tmp_path)
    journal = Journal(tmp_path)
    start = begin(journal, "3f2a", Alone().place, "")
    with pytest.raises(DataError, match="was not staged to its end; stage it again"):
        list_samples(folder, ".npy")
    journal.end(start)
    assert len(list_samples(folder, ".npy")) == 2


def test_a_folder_can_be_listed_before_its_files_come(tmp_path: Path) -> None:
    names = ["train/b.npy", "train/a.npy", "train/deep/c.npy", "stats.h5"]
    with coming(tmp_path / "local", names):
        found = list_samples(tmp_path / "local" / "train", ".npy")
        assert found == [tmp_path / "local" / "train" / name for name in ("a.npy", "b.npy")]
        assert expected_files(tmp_path / "local") == [tmp_path / "local" / name for name in names]
        assert expected_files(tmp_path) is None
        with pytest.raises(DataError, match=r"holds no file named \*\.h5"):
            list_samples(tmp_path / "local" / "train", ".h5")
    with pytest.raises(DataError, match="no such folder"):
        list_samples(tmp_path / "local" / "train", ".npy")
