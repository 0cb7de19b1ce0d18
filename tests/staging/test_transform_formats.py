"""TFRecord and HDF5 samples become NumPy's arrays, as NumPy would write them; what is none of them is told."""

from __future__ import annotations

import gzip
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfrecord.writer import TFRecordWriter

from tests.staging.transforming import COUNTS, LABEL, PLAIN, cosmoflow, files, hdf5, land, problem

FIELDS = np.random.default_rng(1).normal(size=(6, 8, 16)).astype(np.float32)
CLASSES = np.random.default_rng(2).integers(0, 3, (6, 8))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("piece", [None, 777])
def test_a_cosmoflow_record_becomes_two_arrays(tmp_path: Path, packed: bool, piece: int | None) -> None:
    data = cosmoflow(tmp_path)
    landed = land(tmp_path, "tfrecord-to-npy", "t/a.tfrecord", gzip.compress(data) if packed else data, piece)
    assert {file.name for file in landed} == {"t/a_data.npy", "t/a_label.npy"}
    assert {file.source for file in landed} == {"t/a.tfrecord"}
    counts, label = np.load(tmp_path / "t/a_data.npy"), np.load(tmp_path / "t/a_label.npy")
    assert np.array_equal(counts, COUNTS)
    assert counts.dtype == np.int16
    assert np.array_equal(label, LABEL)
    assert label.dtype == np.float32
    for name, array in (("data", COUNTS), ("label", LABEL)):
        np.save(tmp_path / "expected.npy", array)
        assert (tmp_path / f"t/a_{name}.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_channels_and_size_that_are_not_the_published_ones(tmp_path: Path) -> None:
    counts = COUNTS[..., :1]
    land(tmp_path, "tfrecord-to-npy:channels=1,size=6", "a.tfrecord", cosmoflow(tmp_path, counts))
    assert np.array_equal(np.load(tmp_path / "a_data.npy"), counts)


@pytest.mark.parametrize(
    ("transform", "shape"), [("tfrecord-to-npy", (6, 6, 6, 1)), ("tfrecord-to-npy:size=5", (6, 6, 6, 4))]
)
def test_a_record_of_another_shape(tmp_path: Path, transform: str, shape: tuple[int, ...]) -> None:
    data = cosmoflow(tmp_path, COUNTS[..., : shape[-1]])
    size = 2 * int(np.prod(shape))
    side = 5 if "size" in transform else 4
    needed = 2 * 4 * side**3
    assert problem(tmp_path, transform, "a", data) == (
        f"a: feature 'x' has {size} bytes and int16 ({side}, {side}, {side}, 4) has {needed}; "
        "set tfrecord-to-npy:channels=C,size=S to the file's"
    )


def record(folder: Path, features: dict[str, Any]) -> bytes:
    writer = TFRecordWriter(str(folder / "sample"))
    writer.write(features)
    writer.close()
    data = (folder / "sample").read_bytes()
    (folder / "sample").unlink()
    return data


def test_a_record_of_other_features(tmp_path: Path) -> None:
    x, y = (COUNTS.tobytes(), "byte"), (LABEL.tolist(), "float")
    check = "; check that it is a CosmoFlow TFRecord"
    for features, said in [
        ({"y": y}, "has no feature 'x' of one string of bytes"),
        ({"x": y, "y": y}, "has no feature 'x' of one string of bytes"),
        ({"x": x}, "has no feature 'y' of float32"),
        ({"x": x, "y": ([1, 2], "int")}, "has no feature 'y' of float32"),
    ]:
        assert problem(tmp_path, "tfrecord-to-npy", "a", record(tmp_path, features)) == f"a: {said}{check}"
    two = cosmoflow(tmp_path, records=2)
    assert problem(tmp_path, "tfrecord-to-npy", "a", two) == f"a: holds 2 records where one is expected{check}"


def test_damage_to_a_record_is_told(tmp_path: Path) -> None:
    data = bytearray(cosmoflow(tmp_path))
    data[100] ^= 1
    assert "a: record 0 at byte 0 is damaged" in problem(tmp_path, "tfrecord-to-npy", "a", bytes(data))
    assert "a: is empty" in problem(tmp_path, "tfrecord-to-npy", "a", b"")


@pytest.mark.parametrize(
    "form", [{}, {"chunks": True, "compression": "gzip"}, {"chunks": True, "shuffle": True}], ids=str
)
@pytest.mark.parametrize("dtypes", [("<f4", "<i8"), (">f4", ">i2"), ("<f8", "<f4"), ("<f4", "u1")])
def test_a_deepcam_file_becomes_its_npy_form(tmp_path: Path, form: dict[str, Any], dtypes: tuple[str, str]) -> None:
    arrays = {"climate/data": FIELDS.astype(dtypes[0]), "climate/labels_0": CLASSES.astype(dtypes[1]), "extra": [1]}
    landed = land(tmp_path, "hdf5-to-npy", "train/data-1.h5", hdf5(tmp_path, arrays, **form), 5000)
    assert [file.name for file in landed] == ["train/data-1.npy", "train/label-1.npy"]
    for name, array in (("data", FIELDS), ("label", CLASSES.astype(np.uint8))):
        np.save(tmp_path / "expected.npy", array)
        assert (tmp_path / f"train/{name}-1.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


def test_other_datasets_keep_their_type(tmp_path: Path) -> None:
    data = hdf5(tmp_path, {"x": COUNTS, "deep/y": LABEL, "flag": np.array([True, False]), "one": 3.5})
    land(tmp_path, "hdf5-to-npy:a=x,b=deep/y,c=flag,d=one", "s.h5", data)
    for name, array in (("a", COUNTS), ("b", LABEL), ("c", np.array([True, False])), ("d", np.float64(3.5))):
        found = np.load(tmp_path / f"s_{name}.npy")
        assert found.dtype == array.dtype
        assert np.array_equal(found, array)


@pytest.mark.parametrize(
    ("stored", "dtype"),
    [
        (np.array([-(2**24), 2**24], "<i8"), "float32"),
        (np.array([-(2**63), 2**62]), "float64"),
        (np.array([0, 2**63], "u8"), "float32"),
        (np.array([np.inf, -np.inf, np.nan, 0.1, 3e38]), "float32"),
        (np.array([True, False]), "float16"),
        (np.array([0, 2048], "i2"), "float16"),
    ],
)
def test_values_that_a_type_holds_are_cast(tmp_path: Path, stored: np.ndarray, dtype: str) -> None:
    land(tmp_path, f"hdf5-to-npy:a=x@{dtype}", "s.h5", hdf5(tmp_path, {"x": stored}))
    np.testing.assert_array_equal(np.load(tmp_path / "s_a.npy"), stored.astype(dtype))


def test_a_file_without_samples_lands_as_it_is(tmp_path: Path) -> None:
    data = hdf5(tmp_path, {"climate/minval": LABEL})
    land(tmp_path, "hdf5-to-npy", "stats.h5", data)
    assert files(tmp_path) == {"stats.h5": data}
    land(tmp_path, "hdf5-to-npy:x=x,keep=*.txt", "README.txt", PLAIN)
    assert (tmp_path / "README.txt").read_bytes() == PLAIN


def test_hdf5_that_does_not_fit(tmp_path: Path) -> None:
    word = np.array([b"word"])
    numbers = {"nan": [0, np.nan], "odd": np.array([2**24, 2**24 + 1], "<i4"), "most": np.array([2**63 - 1]),
               "large": np.array([1.0, np.inf, -1e39]), "least": np.array([-(2**31)], "<i4")}  # fmt: skip
    data = hdf5(tmp_path, {"climate/data": FIELDS, "climate/labels_0": CLASSES * 100, "w": word, **numbers})
    row, column = (int(i) for i in np.argwhere(CLASSES == 3 - 1)[0])
    for transform, said in [
        ("hdf5-to-npy:a=no", "has no dataset 'no'; set hdf5-to-npy:part=dataset to the file's, or leave it out"),
        ("hdf5-to-npy:a=climate", "has no dataset 'climate'; set"),
        ("hdf5-to-npy:a=w", "dataset 'w' is |S4, not numbers; leave it out"),
        (
            "hdf5-to-npy:a=climate/labels_0@int8",
            f"dataset 'climate/labels_0' has 200 at ({row}, {column}), which int8 ",
        ),
        ("hdf5-to-npy:a=nan@int16", "dataset 'nan' has nan at (1,), which int16 does not hold; set another type in "),
        ("hdf5-to-npy:a=odd@float32", "dataset 'odd' has 16777217 at (1,), which float32 does not hold; set"),
        ("hdf5-to-npy:a=most@float64", "dataset 'most' has 9223372036854775807 at (0,), which float64 does not hold"),
        ("hdf5-to-npy:a=least@float16", "dataset 'least' has -2147483648 at (0,), which float16 does not hold"),
        ("hdf5-to-npy:a=large@float32", "dataset 'large' has -1e+39 at (2,), which float32 does not hold"),
    ]:
        assert problem(tmp_path, transform, "a.h5", data).startswith(f"a.h5: {said}")
    for broken in (PLAIN, b"", data[: len(data) // 2]):
        found = problem(tmp_path, "hdf5-to-npy", "a.h5", broken)
        assert found.startswith("a.h5: is not a sound HDF5 file (")


def test_many_threads_read_hdf5_at_a_time_and_mix_nothing_up(tmp_path: Path) -> None:
    contents = [hdf5(tmp_path, {"x": np.full((50, 50), number)}, chunks=(10, 10)) for number in range(6)]

    def work(number: int) -> None:
        for _ in range(10):
            land(tmp_path, "hdf5-to-npy:a=x", f"{number}.h5", contents[number])

    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        assert (np.load(tmp_path / f"{number}_a.npy") == number).all()
