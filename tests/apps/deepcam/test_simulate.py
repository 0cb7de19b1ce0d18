"""Simulated sets: the published form, the same bytes every time, and classes as rare as the published ones."""

import hashlib
import zlib
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import h5py
import numpy as np
import pytest
import torch

from apps.deepcam.config import CHANNELS
from apps.deepcam.simulate import (
    MOMENTS,
    expected_files,
    finish,
    generator,
    sample_name,
    samples_per_call,
    simulate_sample,
    write_sample,
)
from apps.deepcam.statistics import array_statistics, load_statistics, merge_all
from staging.errors import InputError


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def digest(config, root, index):
    torch.set_num_threads(1)
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in write_sample(config, root, "train", index)]


def test_file_has_the_published_form(small, tmp_path):
    (path,) = write_sample(small, tmp_path, "train", 5)
    assert [path] == expected_files(small, tmp_path, "train", 5)
    assert path.parent == tmp_path / "train"
    with h5py.File(path) as file:
        form = {name: (data.shape, data.dtype.str) for name, data in file["climate"].items()}
        assert form == {
            "data": ((48, 64, 16), "<f4"),
            "labels_0": ((48, 64), "<f4"),
            "labels_1": ((48, 64), "<f4"),
            "data_stats": ((4, 16), "<f4"),
            "labels_0_stats": ((7, 1), "<f4"),
        }
        assert all(data.chunks is None and data.compression is None for data in file["climate"].values())
        data, labels = file["climate/data"][...], file["climate/labels_0"][...]
        rows = (data.mean((0, 1)), data.max((0, 1)), data.min((0, 1)), data.std((0, 1), dtype=np.float64))
        assert file["climate/data_stats"][...] == pytest.approx(np.stack(rows), rel=1e-3)
        shares = [(labels == label).mean() for label in range(3)]
        assert file["climate/labels_0_stats"][4:, 0] == pytest.approx(shares)
        assert file["climate/labels_0_stats"][:4, 0] == pytest.approx(
            [labels.mean(), labels.max(), labels.min(), labels.std()], rel=1e-5
        )


def test_npy_holds_the_same_sample(small, tmp_path):
    (stored,) = write_sample(small, tmp_path, "train", 3)
    small.data.format = "npy"
    fields, labels = write_sample(small, tmp_path, "train", 3)
    assert (fields.name[:5], labels.name[:6]) == ("data-", "label-")
    with h5py.File(stored) as file:
        assert np.array_equal(np.load(fields), file["climate/data"])
        assert np.array_equal(np.load(labels), file["climate/labels_0"])


def test_names_are_dates_of_the_published_form_and_never_repeat():
    names = [sample_name(split, index)[0] for split in ("train", "validation", "test") for index in range(2000)]
    names += [sample_name("train", MOMENTS + index)[0] for index in range(2000)]
    assert len(set(names)) == len(names)
    for name in names[:50]:
        _, year, month, day, hour, _run = name.split("-")
        assert np.datetime64(f"{year}-{month}-{day}") >= np.datetime64("1996-01-01")
        assert 0 <= int(hour) < 8
    days = [sample_name("train", index)[1].day for index in range(64)]
    assert np.ptp(np.histogram(days, bins=4, range=(0, 365))[0]) <= 6
    assert "02-29" not in {name[10:15] for name in names}


@pytest.mark.slow
def test_same_bytes_in_any_order_and_in_another_process(small, tmp_path):
    folders = [tmp_path / name for name in ("forwards", "backwards", "elsewhere")]
    forwards = [digest(small, folders[0], index) for index in range(4)]
    backwards = [digest(small, folders[1], index) for index in reversed(range(4))][::-1]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        elsewhere = list(pool.map(digest, [small] * 4, [folders[2]] * 4, range(4)))
    assert forwards == backwards == elsewhere
    assert len({tuple(d) for d in forwards}) == 4
    small.simulate.seed += 1
    assert digest(small, folders[1], 0) != forwards[0]


def test_random_numbers_differ_between_splits():
    draws = [generator(1, split, index).standard_normal() for split in ("train", "validation") for index in range(50)]
    assert len(set(draws)) == 100
    assert samples_per_call(None) == 1


def test_unknown_split_is_refused(small, tmp_path):
    with pytest.raises(InputError, match="split 'training' is not one of train, validation, test"):
        write_sample(small, tmp_path, "training", 0)


@pytest.mark.parametrize("key", ["cyclones_per_sample", "rivers_per_sample"])
def test_negative_numbers_of_events_are_refused(small, key):
    setattr(small.simulate, key, -1.0)
    with pytest.raises(InputError, match=rf"simulate\.{key} \(-1\.0\) must be at least 0"):
        small.validate()


def frequencies(config, samples):
    labels = [simulate_sample(config, "train", index)[1] for index in range(samples)]
    return [float(np.mean([label == value for label in labels])) for value in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("height", "width", "samples"),
    [(96, 144, 120), pytest.param(192, 288, 100, marks=pytest.mark.slow)],
)
def test_classes_are_as_rare_as_the_published_ones(small, height, width, samples):
    small.data.height, small.data.width = height, width
    background, cyclone, river = frequencies(small, samples)
    assert background == pytest.approx(0.986, abs=0.005)
    assert 0.000458 / 1.5 < cyclone < 0.000458 * 1.5
    assert river == pytest.approx(0.01327, rel=0.25)


def test_fields_are_as_hard_to_compress_as_measurements(small):
    small.data.height, small.data.width = 96, 144
    sample, _, _ = simulate_sample(small, "train", 0)
    for channel, name in enumerate(CHANNELS):
        raw = np.ascontiguousarray(sample[..., channel]).tobytes()
        assert len(zlib.compress(raw, 6)) > 0.7 * len(raw), name
    raw = sample.tobytes()
    assert len(zlib.compress(raw, 6)) > 0.8 * len(raw)


def test_sixteen_rows_are_enough(small, tmp_path):
    small.data.height = small.data.width = 16
    for index in range(6):
        sample, labels, _ = simulate_sample(small, "train", index)
        assert np.isfinite(sample).all()
        assert labels.shape == (16, 16)


def test_finish_summarizes_the_training_split_alone(small, tmp_path):
    for split, count in (("train", 3), ("validation", 2)):
        for index in range(count):
            write_sample(small, tmp_path, split, index)
    finish(small, tmp_path, map)
    found = load_statistics(tmp_path)
    wanted = merge_all(array_statistics(simulate_sample(small, "train", index)[0]) for index in range(3))
    assert found.count == 3 * 48 * 64
    assert np.array_equal(found.minimum, wanted.minimum)
    assert np.array_equal(found.maximum, wanted.maximum)
    assert found.mean == pytest.approx(wanted.mean, rel=1e-4, abs=1e-3)
