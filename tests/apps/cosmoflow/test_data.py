"""Reading CosmoFlow datasets: what is returned, which samples are taken, and one clear line for every bad file."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tfrecord.reader import tfrecord_loader

from apps.cosmoflow import inspection
from apps.cosmoflow.config import Config
from apps.cosmoflow.data import check_file, files_of_split, inspect_file, open_split
from apps.cosmoflow.samples import SUFFIXES, files_of_sample, read_sample, write_sample
from staging.errors import DataError, InputError
from staging.formats.example import encode_example
from staging.formats.tfrecord import write_records

FORMS = [("tfrecord", "gzip"), ("tfrecord", "none"), ("hdf5", "gzip"), ("hdf5", "none"), ("npy", "none")]
every_form = pytest.mark.parametrize(("form", "compression"), FORMS)
LABEL = np.array([-0.896, 0.358, -0.770, 0.807], dtype=np.float32)


def configured(root: Path | str = "", form: str = "tfrecord", compression: str = "gzip", **data: Any) -> Config:
    config = Config()
    config.data.root, config.data.sample_size = str(root), 4
    config.data.format, config.data.compression = form, compression  # type: ignore[assignment]
    for key, value in data.items():
        setattr(config.data, key, value)
    return config


def some_counts(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson(1.0, (4, 4, 4, 4)).astype(np.int16)


def write_split(config: Config, split: str = "train", samples: int = 5) -> list[Path]:
    folder = Path(config.data.root) / split
    folder.mkdir(parents=True)
    files = [folder / f"1_univ_a{i}_000{SUFFIXES[config.data.format]}" for i in range(samples)]
    for i in reversed(range(samples)):
        write_sample(files[i], some_counts(i), LABEL * i / 8, config.data)
    return files


@every_form
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.one_of(
        hnp.arrays(np.int16, (4, 4, 4, 4)), hnp.arrays(np.int16, (4, 4, 4, 4), elements=st.integers(0, 2**15 - 1))
    ),
    label=hnp.arrays(np.float32, 4, elements=st.floats(-1, 1, width=32)),
)
def test_what_is_written_is_read_but_for_negative_counts(
    tmp_path: Path, form: str, compression: str, counts: np.ndarray, label: np.ndarray
) -> None:
    data = configured(form=form, compression=compression).data
    path = tmp_path / f"sample{SUFFIXES[data.format]}"
    write_sample(path, counts, label, data)
    if counts.min() < 0:
        with pytest.raises(DataError, match=f"holds a count of {counts.min()}"):
            read_sample(path, data)
        return
    found_counts, found_label = read_sample(path, data)
    np.testing.assert_array_equal(found_counts, counts)
    np.testing.assert_array_equal(found_label, label)
    assert (found_counts.dtype, found_label.dtype) == (np.int16, np.float32)


@every_form
def test_items_are_counts_with_channels_first_and_labels(tmp_path: Path, form: str, compression: str) -> None:
    config = configured(tmp_path, form, compression)
    files = write_split(config)
    samples = open_split(config, "train")
    assert samples.files == files
    assert len(samples) == 5
    counts, label = samples[3]
    np.testing.assert_array_equal(counts, some_counts(3).transpose(3, 0, 1, 2))
    assert counts.dtype == torch.int16
    assert counts[None].is_contiguous(memory_format=torch.channels_last_3d)
    np.testing.assert_array_equal(label, LABEL * 3 / 8)
    assert label.dtype == torch.float32


def test_an_independent_reader_understands_our_tfrecord(tmp_path: Path) -> None:
    path = tmp_path / "sample.tfrecord"
    write_sample(path, some_counts(), LABEL, configured(compression="none").data)
    (record,) = tfrecord_loader(str(path), None, {"x": "byte", "y": "float"})
    np.testing.assert_array_equal(np.frombuffer(record["x"], "<i2").reshape(4, 4, 4, 4), some_counts())
    np.testing.assert_array_equal(record["y"], LABEL)


def test_gzip_of_another_program_is_read(tmp_path: Path) -> None:
    """The published set was compressed by TensorFlow: a time stamp and other settings than ours."""
    data = configured(compression="none").data
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    write_sample(plain, some_counts(), LABEL, data)
    packed.write_bytes(gzip.compress(plain.read_bytes(), 1, mtime=1_600_000_000))
    np.testing.assert_array_equal(read_sample(packed, configured().data)[0], some_counts())


def test_the_first_samples_by_name_are_used(tmp_path: Path) -> None:
    config = configured(tmp_path, train_samples=2)
    files = write_split(config)
    (tmp_path / "train" / ".1_univ_a0_000.tfrecord.123.part").touch()
    (tmp_path / "train" / "notes.txt").touch()
    assert open_split(config, "train").files == files[:2]
    assert files_of_split(config, "train") == files[:2]


@pytest.mark.parametrize("form", SUFFIXES)
def test_samples_have_one_order_in_all_formats(tmp_path: Path, form: str) -> None:
    """A transform of the staging changes only the ends of names; a run may use another one after an interruption."""
    config = configured(tmp_path, form, train_samples=4)
    for path, number in zip(write_split(config), (10, 1, 2, 11, 100), strict=True):
        for file in files_of_sample(path, form):
            file.rename(file.with_name(f"a_{number}{file.name.removeprefix(path.name.removesuffix(SUFFIXES[form]))}"))
    names = [path.name.removesuffix(SUFFIXES[form]) for path in open_split(config, "train").files]
    assert names == ["a_1", "a_10", "a_100", "a_11"]


def test_npy_samples_have_two_files(tmp_path: Path) -> None:
    config = configured(tmp_path, "npy", train_samples=2)
    write_split(config)
    names = [path.name for path in files_of_split(config, "train")]
    assert names == [f"1_univ_a{i}_000_{part}.npy" for i in (0, 1) for part in ("data", "label")]
    for path in files_of_split(config, "train"):
        check_file(path, config)


def test_opening_a_split_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "not a record.tfrecord").write_bytes(b"")
    assert len(open_split(configured(tmp_path), "train")) == 1


def test_more_samples_than_there_are(tmp_path: Path) -> None:
    config = configured(tmp_path, train_samples=6)
    write_split(config)
    with pytest.raises(InputError, match=r"data.train_samples \(6\) is more than the 5 samples in .*; lower it"):
        open_split(config, "train")


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no dataset: set data[.]root"):
        open_split(configured(), "train")
    with pytest.raises(DataError, match="no such folder"):
        open_split(configured(tmp_path), "validation")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def features(**values: Any) -> Callable[[Path], None]:
    return lambda path: write_records(path, [encode_example(values)], "none")


RAW = some_counts().tobytes()


@pytest.mark.parametrize(
    ("spoil", "compression", "problem"),
    [
        (cut, "none", "cut short"),
        (cut, "gzip", "cut short"),
        (flip, "none", "CRC32C of its .* does not match"),
        (flip, "gzip", "damaged gzip"),
        (features(data=RAW, y=LABEL), "none", "has no feature 'x', it has 'data', 'y'"),
        (features(x=RAW, label=LABEL), "none", "has no feature 'y', it has 'label', 'x'"),
        (
            features(x=RAW[:-2], y=LABEL),
            "none",
            r"'x' has 510 bytes where int16 \(4, 4, 4, 4\) needs 512; set data.samp",
        ),
        (features(x=[RAW, RAW], y=LABEL), "none", "'x' is not one string of bytes"),
        (features(x=LABEL, y=LABEL), "none", "'x' is not one string of bytes"),
        (features(x=RAW, y=LABEL[:3]), "none", r"'y' is float32 \(3,\) where float32 \(4,\) is expected"),
        (features(x=RAW, y=np.arange(4)), "none", r"'y' is int64 \(4,\) where"),
        (features(x=RAW, y=RAW), "none", "'y' is 1 strings of bytes where"),
        (features(x=RAW, y=2 * LABEL), "none", r"label \[.*\] is not within \[-1, 1\]"),
        (features(x=RAW, y=np.nan * LABEL), "none", r"label \[nan.* is not within"),
        (features(x=(some_counts() - 1).tobytes(), y=LABEL), "none", "holds a count of -1"),
        (features(x=bytes(512), y=LABEL), "none", "holds no particle at all"),
    ],
)
def test_bad_tfrecords(tmp_path: Path, spoil: Callable[[Path], None], compression: str, problem: str) -> None:
    config = configured(tmp_path, compression=compression)
    path = write_split(config)[0]
    check_file(path, config)
    spoil(path)
    with pytest.raises(DataError, match=problem) as caught:
        check_file(path, config)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(("written", "said"), [("gzip", "none"), ("none", "gzip")])
def test_the_wrong_compression_is_named(tmp_path: Path, written: str, said: str) -> None:
    path = write_split(configured(tmp_path, compression=written))[0]
    with pytest.raises(
        DataError, match=rf"gzip although compression '{said}' was said; set data.compression {written}"
    ):
        check_file(path, configured(tmp_path, compression=said))


@pytest.mark.parametrize(
    ("contents", "problem"),
    [
        ({"full": some_counts(), "y": LABEL}, "has no dataset 'x', it has 'full', 'y'"),
        ({"x": some_counts(), "unitPar": LABEL}, "has no dataset 'y'"),
        ({"x": some_counts()[:2], "y": LABEL}, r"'x' has shape \(2, 4, 4, 4\) where \(4, 4, 4, 4\) is expected"),
        ({"x": some_counts().astype(np.float32), "y": LABEL}, "'x' is float32 where integer or unsigned"),
        ({"x": some_counts(), "y": LABEL[:2]}, r"'y' has shape \(2,\) where \(4,\) is expected"),
        ({"x": some_counts(), "y": np.arange(4)}, "'y' is int64 where floating point is expected"),
    ],
)
def test_bad_hdf5_files(tmp_path: Path, contents: dict[str, np.ndarray], problem: str) -> None:
    path = tmp_path / "sample.hdf5"
    with h5py.File(path, "w") as file:
        for key, array in contents.items():
            file[key] = array
    with pytest.raises(DataError, match=problem):
        check_file(path, configured(form="hdf5"))


def test_bad_npy_files(tmp_path: Path) -> None:
    config = configured(tmp_path, "npy")
    counts, label = write_split(config)[0], tmp_path / "train" / "1_univ_a0_000_label.npy"
    np.save(counts, some_counts().astype(np.float32))
    with pytest.raises(DataError, match="holds float32 where int16 is expected"):
        check_file(counts, config)
    np.save(counts, some_counts()[:1])
    with pytest.raises(DataError, match=r"has shape \(1, 4, 4, 4\)"):
        check_file(counts, config)
    np.save(label, np.zeros(3, np.float32))
    with pytest.raises(DataError, match=r"has shape \(3,\) where \(4,\)"):
        check_file(label, config)
    np.save(counts, some_counts())
    label.unlink()
    with pytest.raises(DataError, match=re.escape(str(label))):
        check_file(counts, config)


@every_form
def test_inspection_says_what_a_file_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, compression: str
) -> None:
    monkeypatch.setattr(inspection, "CELLS", 7)  # so that the last part is a smaller one
    config = configured(tmp_path, form, compression)
    path = write_split(config)[4]
    facts = inspect_file(path)
    counts = some_counts(4)
    assert facts["counts"] == f"min 0, mean {counts.mean():.4g}, max {counts.max()}"
    by_channel = np.log(1 + counts.reshape(-1, 4).astype(float))
    for name, values in (("mean", by_channel.mean(axis=0)), ("std", by_channel.std(axis=0))):
        printed = [float(value) for value in facts[f"{name} of ln(1 + count), by channel"].split(", ")]
        assert printed == pytest.approx(values.tolist(), abs=6e-4)
    assert facts["label"] == "-0.4480, +0.1790, -0.3850, +0.4035"
    physical = (0.3089 * (1 - 0.3 * 0.448), 67.74 * (1 + 0.3 * 0.4035))
    assert facts["parameters"].startswith(f"omega_m {physical[0]:.4f}, sigma_8 ")
    assert facts["parameters"].endswith(f"h_0 {physical[1]:.4f}")
    assert "(4, 4, 4, 4) int16" in (facts.get("x") or facts["array"])


def test_inspection_of_other_files(tmp_path: Path) -> None:
    config = configured(tmp_path, "npy")
    path = write_split(config)[0]
    assert inspect_file(path.with_name("1_univ_a0_000_label.npy"))["format"] == "npy, label"
    universe = tmp_path / "universe.hdf5"
    with h5py.File(universe, "w") as file:
        file["full"], file["unitPar"], file["other"] = np.arange(8 * 40).reshape(40, 2, 2, 2), LABEL, np.ones(3)
    facts = inspect_file(universe)
    assert facts["format"] == "HDF5, universe"
    assert facts["counts"] == "min 0, mean 159.5, max 319"
    assert facts["other"] == "(3,) float64"
    with h5py.File(universe, "w") as file:
        file["other"] = np.ones(3)
    assert inspect_file(universe) == {"format": "HDF5", "other": "(3,) float64"}
    with pytest.raises(DataError, match="cannot be read"):
        inspect_file(tmp_path / "nothing.tfrecord")
    features(x=LABEL, y=LABEL)(path)
    with pytest.raises(DataError, match="'x' and 'y' are not bytes and floats"):
        inspect_file(path)


@pytest.mark.parametrize(("label", "printed"), [(LABEL[None], "-0.8960, +0.3580, -0.7700, +0.8070"), (0.5, "+0.5000")])
def test_inspection_of_labels_of_other_shapes(tmp_path: Path, label: Any, printed: str) -> None:
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = some_counts(), label
    facts = inspect_file(path)
    assert facts["label"] == printed
    assert "parameters" not in facts
