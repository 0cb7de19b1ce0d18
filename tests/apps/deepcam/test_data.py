"""Reading samples: what was written comes back, and everything wrong with a file is said in one line."""

import shutil

import h5py
import numpy as np
import pytest
import torch

from apps.deepcam.data import check_file, inspect_file, open_split
from apps.deepcam.simulate import finish, simulate_sample, write_sample
from apps.deepcam.statistics import Statistics, write_statistics
from staging.errors import DataError, InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three training samples and a validation sample of 48 x 64, in both formats."""
    from apps.deepcam.config import Config

    roots = {}
    for form in ("hdf5", "npy"):
        config = Config()
        config.data.height, config.data.width, config.data.format = 48, 64, form
        roots[form] = tmp_path_factory.mktemp(form)
        for index in range(3):
            write_sample(config, roots[form], "train", index)
        write_sample(config, roots[form], "validation", 0)
        finish(config, roots[form])
    return roots


@pytest.fixture(params=["hdf5", "npy"])
def config(request, small, made, tmp_path):
    """A configuration whose set is a copy that a test may damage."""
    shutil.copytree(made[request.param], tmp_path / "set")
    small.data.format, small.data.root = request.param, str(tmp_path / "set")
    return small


def edit(path, key, change):
    """Replace a dataset of an HDF5 file, or the npy file that stands for it."""
    if path.suffix == ".npy":
        target = path if key == "data" else path.with_name(path.name.replace("data-", "label-"))
        np.save(target, change(np.load(target)))
        return
    with h5py.File(path, "a") as file:
        new = change(file[f"climate/{key}"][...])
        del file[f"climate/{key}"]
        file[f"climate/{key}"] = new


def changed(**places):
    """A change that sets single pixels."""

    def change(array):
        for value, place in places.values():
            array = array.astype(np.float32) if isinstance(value, float) else array
            array[place] = value
        return array

    return change


def test_samples_come_back_as_written_in_channels_last_memory(config):
    split = open_split(config, "train")
    assert len(split) == 3
    assert [path.name for path in split.files] == sorted(path.name for path in split.files)
    wanted = {simulate_sample(config, "train", index)[0].tobytes() for index in range(3)}
    for fields, labels in (split[index] for index in range(3)):
        assert fields.shape == (16, 48, 64)
        assert fields.stride() == (1, 64 * 16, 16)
        assert fields.permute(1, 2, 0).numpy().tobytes() in wanted
        assert labels.shape == (48, 64)
        assert labels.dtype == torch.uint8
        assert int(labels.max()) <= 2


def test_both_formats_hold_the_same_labels(small, made):
    labels = {}
    for form, root in made.items():
        small.data.format, small.data.root = form, str(root)
        split = open_split(small, "train")
        labels[form] = torch.stack([split[index][1] for index in range(3)])
    assert torch.equal(labels["hdf5"], labels["npy"])
    assert bool((labels["npy"] == 2).any())


def test_chosen_channels_come_in_the_chosen_order(config):
    whole, _ = open_split(config, "train")[0]
    config.data.channels = [7, 0, 15]
    fields, _ = open_split(config, "train")[0]
    assert torch.equal(fields, whole[[7, 0, 15]])


def test_first_samples_by_name(config):
    everything = open_split(config, "train").files
    config.data.train_samples = 2
    assert open_split(config, "train").files == everything[:2]
    assert len(open_split(config, "validation")) == 1
    config.data.train_samples = 4
    with pytest.raises(InputError, match=r"data\.train_samples \(4\) must be between 1 and 3"):
        open_split(config, "train")


def test_missing_folder_and_wrong_format(config):
    with pytest.raises(DataError, match="no such folder"):
        open_split(config, "test")
    config.data.format = "npy" if config.data.format == "hdf5" else "hdf5"
    with pytest.raises(DataError, match="holds no file named"):
        open_split(config, "train")


def test_files_of_another_name_alone_are_no_samples(config, tmp_path):
    (tmp_path / "set" / "test").mkdir()
    suffix = ".npy" if config.data.format == "npy" else ".h5"
    (tmp_path / "set" / "test" / f"other{suffix}").touch()
    with pytest.raises(DataError, match="holds no file named data-"):
        open_split(config, "test")


def test_field_that_is_not_finite_is_named(config):
    split = open_split(config, "train")
    edit(split.files[1], "data", changed(a=(np.float32("nan"), (4, 7, 10))))
    edit(split.files[2], "data", changed(a=(np.float32("inf"), (0, 1, 0))))
    with pytest.raises(DataError, match="PRECT is nan at row 4, column 7; copy the file again"):
        split[1]
    with pytest.raises(DataError, match="TMQ is inf at row 0, column 1"):
        check_file(split.files[2], config)
    check_file(split.files[0], config)


@pytest.mark.parametrize("value", [3.0, -1.0, 0.5, float("nan")])
def test_label_that_is_no_class_is_named(small, made, tmp_path, value):
    shutil.copytree(made["hdf5"], tmp_path / "set")
    small.data.root = str(tmp_path / "set")
    split = open_split(small, "train")
    edit(split.files[0], "labels_0", changed(a=(value, (2, 3))))
    with pytest.raises(DataError, match=rf"label {value} at row 2, column 3 is not 0, 1 or 2"):
        split[0]


def test_label_that_is_no_class_in_npy(small, made, tmp_path):
    shutil.copytree(made["npy"], tmp_path / "set")
    small.data.format, small.data.root = "npy", str(tmp_path / "set")
    split = open_split(small, "train")
    edit(split.files[0], "labels_0", changed(a=(7, (2, 3))))
    with pytest.raises(DataError, match="label 7 at row 2, column 3 is not 0, 1 or 2"):
        check_file(split.files[0].with_name(split.files[0].name.replace("data-", "label-")), small)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("data", lambda array: array[:-1]),
        ("data", lambda array: array[..., :12]),
        ("data", lambda array: array.astype(np.int32)),
        ("labels_0", lambda array: array[:, :-2]),
    ],
    ids=["fewer rows", "fewer channels", "integers", "labels too narrow"],
)
def test_wrong_form_is_one_line(config, key, change):
    split = open_split(config, "train")
    edit(split.files[0], key, change)
    with pytest.raises(DataError) as caught:
        split[0]
    assert "\n" not in str(caught.value)
    assert "expected" in str(caught.value)


def test_missing_labels(config):
    split = open_split(config, "train")
    if config.data.format == "npy":
        split.files[0].with_name(split.files[0].name.replace("data-", "label-")).unlink()
    else:
        with h5py.File(split.files[0], "a") as file:
            del file["climate/labels_0"]
    with pytest.raises(DataError, match="label"):
        split[0]


def test_statistics_are_checked_too(config, tmp_path):
    stats = tmp_path / "set" / "stats.h5"
    check_file(stats, config)
    stats.write_bytes(b"not HDF5")
    with pytest.raises(DataError, match="stats"):
        check_file(stats, config)


def test_inspection_tells_ranges_and_shares(config, tmp_path):
    split = open_split(config, "train")
    fields, labels = split[0]
    lines = inspect_file(split.files[0])
    assert lines["PSL"].startswith(f"{float(fields[7].min()):.4g} to {float(fields[7].max()):.4g}")
    if config.data.format == "npy":
        lines = inspect_file(split.files[0].with_name(split.files[0].name.replace("data-", "label-")))
    assert lines["background"] == f"{float((labels == 0).double().mean()):.4%} of pixels"
    assert "TMQ" in inspect_file(tmp_path / "set" / "stats.h5")


def test_inspection_of_damaged_npy(tmp_path):
    (tmp_path / "data-1.npy").write_bytes(b"nothing")
    with pytest.raises(DataError, match="npy"):
        inspect_file(tmp_path / "data-1.npy")


def test_inspection_reads_the_statistics_that_it_is_given(tmp_path):
    row = np.arange(16, dtype=np.float32)
    for name, high in (("stats.h5", 1), ("other.h5", 5)):
        write_statistics(tmp_path / name, Statistics(1, row.astype(float), row.astype(float), row, row + high))
    assert inspect_file(tmp_path / "stats.h5")["TMQ"] == "0 to 1"
    assert inspect_file(tmp_path / "other.h5")["TMQ"] == "0 to 5"
