"""Statistics: the merge rule equals one pass, and what is wrong with a file is said in one line."""

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.deepcam.simulate import write_sample
from apps.deepcam.statistics import (
    array_statistics,
    file_statistics,
    load_statistics,
    merge,
    merge_all,
    summarize,
    write_statistics,
)
from staging.errors import DataError, InputError


def sample(rows, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((rows, 3, 16)) * np.arange(1, 17) + 5).astype(np.float32)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 99))
def test_merging_equals_one_pass(sizes, seed):
    parts = [sample(rows, seed + i) for i, rows in enumerate(sizes)]
    merged = merge_all(array_statistics(part) for part in parts)
    pixels = np.concatenate(parts).reshape(-1, 16).astype(np.float64)
    assert merged.count == len(pixels)
    assert merged.mean == pytest.approx(pixels.mean(0), rel=1e-9, abs=1e-9)
    assert merged.square_mean == pytest.approx((pixels**2).mean(0), rel=1e-6)
    assert np.array_equal(merged.minimum, pixels.min(0))
    assert np.array_equal(merged.maximum, pixels.max(0))


def test_merging_weighs_by_count():
    a, b = array_statistics(np.zeros((1, 1, 16), np.float32)), array_statistics(np.ones((3, 1, 16), np.float32))
    assert merge(a, b).mean == pytest.approx(np.full(16, 0.75))
    assert merge(b, a).square_mean == pytest.approx(np.full(16, 0.75))


def test_round_trip_in_the_published_form(tmp_path):
    statistics = array_statistics(sample(9))
    write_statistics(tmp_path / "stats.h5", statistics)
    with h5py.File(tmp_path / "stats.h5") as file:
        assert {name: data.shape for name, data in file["climate"].items()} == {
            "count": (), "mean": (16,), "sqmean": (16,), "minval": (16,), "maxval": (16,),
        }  # fmt: skip
    found = load_statistics(tmp_path)
    assert found.count == 27
    assert found.minimum.dtype == found.maximum.dtype == np.float32
    assert np.array_equal(found.maximum, statistics.maximum)
    assert found.mean == pytest.approx(statistics.mean, rel=1e-6)


def test_many_processes_give_the_result_of_one(small, tmp_path):
    files = [write_sample(small, tmp_path, "train", index)[0] for index in range(5)]
    one, two = summarize(files, 1), summarize(files, 2)
    assert np.array_equal(one.mean, two.mean)
    assert np.array_equal(one.square_mean, two.square_mean)
    assert np.array_equal(one.maximum, two.maximum)
    small.data.format = "npy"
    as_npy = file_statistics(write_sample(small, tmp_path, "train", 0)[0])
    assert np.array_equal(as_npy.mean, file_statistics(files[0]).mean)


def test_nothing_to_summarize():
    with pytest.raises(InputError, match="no file to summarize; give at least one"):
        summarize([])


def test_missing_statistics_are_one_line(tmp_path):
    with pytest.raises(DataError, match=r"stats\.h5: no such file; make it from the training split") as caught:
        load_statistics(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_empty_range_names_the_channel(tmp_path):
    data = sample(4)
    data[..., 7] = 101325.0
    write_statistics(tmp_path / "stats.h5", array_statistics(data))
    with pytest.raises(DataError, match=r"channel 7 \(PSL\) has minval 101325 and maxval 101325; make it from"):
        load_statistics(tmp_path)


def test_range_that_is_not_a_number_names_the_channel(tmp_path):
    data = sample(4)
    data[0, 0, 2] = np.nan
    write_statistics(tmp_path / "stats.h5", array_statistics(data))
    with pytest.raises(DataError, match=r"channel 2 \(V850\) has minval nan"):
        load_statistics(tmp_path)


def test_missing_and_misshapen_datasets(tmp_path):
    write_statistics(tmp_path / "stats.h5", array_statistics(sample(4)))
    with h5py.File(tmp_path / "stats.h5", "a") as file:
        del file["climate/minval"]
    with pytest.raises(DataError, match="climate/minval"):
        load_statistics(tmp_path)
    with h5py.File(tmp_path / "stats.h5", "a") as file:
        file["climate/minval"] = np.zeros(12, np.float32)
    with pytest.raises(DataError, match=r"climate/minval.*\(12,\).*\(16,\)"):
        load_statistics(tmp_path)
