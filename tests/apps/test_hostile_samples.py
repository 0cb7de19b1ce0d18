"""Sample files of both applications, changed anywhere: what is read is the sample, or one line naming the file."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.cosmoflow import data as cosmoflow
from apps.cosmoflow.config import Config as CosmoFlowConfig
from apps.cosmoflow.samples import SUFFIXES, write_sample
from apps.deepcam import data as deepcam
from apps.deepcam.config import CHANNELS
from apps.deepcam.config import Config as DeepCAMConfig
from apps.deepcam.statistics import Statistics, load_statistics, write_statistics
from hpcbench.parallel.spatial.extents import Extent
from staging.errors import DataError
from staging.formats.hdf5 import write_datasets
from staging.formats.npy import write_array

LABEL = np.array([-1, 1, -0.770, 0.807], dtype=np.float32)
FORMS = [("tfrecord", "gzip"), ("tfrecord", "none"), ("hdf5", "gzip"), ("hdf5", "none"), ("npy", "none")]


def cosmoflow_set(root: Path, form: str, compression: str) -> tuple[Any, Path]:
    """A configuration and the one sample of its training split, of 4^3 cells."""
    config = CosmoFlowConfig()
    config.data.root, config.data.sample_size = str(root), 4
    config.data.format, config.data.compression = form, compression  # type: ignore[assignment]
    path = root / "train" / f"a{SUFFIXES[form]}"
    path.parent.mkdir(parents=True)
    counts = np.random.default_rng(0).poisson(1.0, (4, 4, 4, 4)).astype(np.int16)
    write_sample(path, counts, LABEL, config.data)
    return config, path


def deepcam_set(root: Path, form: str) -> tuple[Any, Path]:
    """The same of 16 x 16 pixels."""
    config = DeepCAMConfig()
    config.data.root, config.data.height, config.data.width = str(root), 16, 16
    config.data.format = form  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    fields = rng.normal(size=(16, 16, 16)).astype(np.float32)
    labels = rng.integers(0, 3, (16, 16))
    (root / "train").mkdir(parents=True)
    path = root / "train" / ("data-1.npy" if form == "npy" else "data-1.h5")
    if form == "npy":
        write_array(path, fields)
        write_array(path.with_name("label-1.npy"), labels.astype(np.uint8))
    else:
        write_datasets(path, {"climate/data": fields, "climate/labels_0": labels.astype(np.float32)})
    return config, path


@st.composite
def changes(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Some bytes changed, and the file cut short or made longer, or only one of these."""
    edits = draw(st.lists(st.tuples(st.floats(0, 0.999), st.integers(1, 255)), max_size=6))
    kept = draw(st.sampled_from([1.0, 1.0, 1.0, 0.999, 0.5, 0.0]))
    added = draw(st.one_of(st.just(b""), st.binary(max_size=40), st.just(bytes(4096))))

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        for place, bits in edits:
            changed[int(place * len(data))] ^= bits
        return bytes(changed[: int(kept * len(data))]) + added

    return change


def same_or_refused(
    open_split: Any, check_file: Any, config: Any, path: Path
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """What a changed file reads as, ``None`` where it is refused. Verifying refuses whatever reading does."""
    try:
        sample: tuple[torch.Tensor, torch.Tensor] = open_split(config, "train")[0]
    except DataError as error:
        refusal = str(error)
    else:
        return sample
    assert refusal.startswith(f"{path}: ")
    assert "\n" not in refusal
    with pytest.raises(DataError):
        check_file(path, config)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("form", "compression"), FORMS)
@settings(max_examples=120, deadline=10_000)
@given(change=changes())
def test_a_changed_cosmoflow_sample(
    tmp_path_factory: pytest.TempPathFactory, form: str, compression: str, change: Callable[[bytes], bytes]
) -> None:
    config, path = cosmoflow_set(tmp_path_factory.mktemp("set"), form, compression)
    counts, label = cosmoflow.open_split(config, "train")[0]
    path.write_bytes(change(path.read_bytes()))
    sample = same_or_refused(cosmoflow.open_split, cosmoflow.check_file, config, path)
    if sample is None:
        return
    if form == "tfrecord":  # checksums are on every byte
        assert torch.equal(sample[0], counts)
        assert torch.equal(sample[1], label)
    assert sample[0].shape == counts.shape
    assert sample[0].dtype == torch.int16
    assert sample[1].dtype == torch.float32
    assert bool((sample[1].abs() <= 1.001).all())


@pytest.mark.parametrize("form", ["hdf5", "npy"])
@settings(max_examples=120, deadline=10_000)
@given(change=changes())
def test_a_changed_deepcam_sample(
    tmp_path_factory: pytest.TempPathFactory, form: str, change: Callable[[bytes], bytes]
) -> None:
    """Neither form has a checksum: values may be others, of the same shape and type, finite, and classes."""
    config, path = deepcam_set(tmp_path_factory.mktemp("set"), form)
    path.write_bytes(change(path.read_bytes()))
    sample = same_or_refused(deepcam.open_split, deepcam.check_file, config, path)
    if sample is None:
        return
    assert sample[0].shape == (16, 16, 16)
    assert sample[0].dtype == torch.float32
    assert bool(sample[0].isfinite().all())
    assert sample[1].shape == (16, 16)
    assert int(sample[1].max()) <= 2


@pytest.mark.parametrize(
    "label", [[0, 0, 0, np.nan], [np.inf, 0, 0, 0], [0, -np.inf, 0, 0], [0, 0, -1.01, 0], [1e30, 0, 0, 0]]
)
@pytest.mark.parametrize(("form", "compression"), FORMS)
def test_a_label_out_of_range_is_refused_where_it_is_read(
    tmp_path: Path, form: str, compression: str, label: list[float]
) -> None:
    config, path = cosmoflow_set(tmp_path, form, compression)
    samples = cosmoflow.open_split(config, "train")
    np.testing.assert_array_equal(samples[0][1], LABEL)  # both ends of the published range are in it
    write_sample(path, np.ones((4, 4, 4, 4), np.int16), np.array(label, np.float32), config.data)
    with pytest.raises(DataError, match=r"a[^/]*: label \[.*\] is not within \[-1, 1\]"):
        samples[0]


@pytest.mark.parametrize(("form", "compression"), FORMS)
def test_a_negative_count_is_refused_where_it_is_read(tmp_path: Path, form: str, compression: str) -> None:
    config, path = cosmoflow_set(tmp_path, form, compression)
    samples = cosmoflow.open_split(config, "train")
    counts = np.zeros((4, 4, 4, 4), np.int16)
    counts[2, 1, 1, 3] = -30000
    write_sample(path, counts, LABEL, config.data)
    with pytest.raises(DataError) as error:
        samples[0]
    assert str(error.value) == f"{path}: holds a count of -30000; copy it again, or remove it from the set"
    with pytest.raises(DataError, match="holds a count of -30000"):
        samples.part({2: Extent(2, 4)})[0]
    samples.part({2: Extent(0, 2)})[0]


def test_the_second_record_of_a_training_file_is_refused(tmp_path: Path) -> None:
    config, path = cosmoflow_set(tmp_path, "tfrecord", "gzip")
    raw = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(raw) + gzip.compress(raw))
    with pytest.raises(DataError, match=r"has a second record, of 5.. bytes, where one is expected"):
        cosmoflow.open_split(config, "train")[0]


@pytest.mark.parametrize("form", ["cosmoflow", "hdf5", "npy"])
def test_listing_refuses_a_pipe_and_follows_links(tmp_path: Path, form: str) -> None:
    """The published DeepCAM splits are folders of links."""
    config, path = cosmoflow_set(tmp_path, "tfrecord", "gzip") if form == "cosmoflow" else deepcam_set(tmp_path, form)
    application = cosmoflow if form == "cosmoflow" else deepcam
    moved = tmp_path / path.name
    shutil.move(path, moved)
    path.symlink_to(moved)
    application.open_split(config, "train")[0]
    os.mkfifo(path.with_name(f"data-0{path.suffix}"))
    with pytest.raises(DataError, match=r"data-0\S*: is a pipe, not a file; remove it"):
        application.open_split(config, "train")
    path.with_name(f"data-0{path.suffix}").unlink()
    moved.unlink()
    os.mkfifo(moved)
    samples = application.open_split(config, "train")
    with pytest.raises(DataError, match="is a pipe, not a file"):
        samples[0]


def some_statistics(**changes: Any) -> Statistics:
    whole = np.arange(16, dtype=np.float64)
    low = whole.astype(np.float32)
    values: dict[str, Any] = {"count": 5, "mean": whole + 1, "square_mean": (whole + 1) ** 2 + 0.1, "minimum": low}
    return Statistics(**(values | {"maximum": low + 2} | changes))


def changed(value: float) -> np.ndarray:
    array = np.arange(16, dtype=np.float64)
    array[3] = value
    return array


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"count": 0}, r"'climate/count' is \[0\], not a number above 0"),
        ({"mean": changed(np.nan)}, r"channel 3 \(UBOT\) has mean nan"),
        ({"square_mean": changed(np.inf)}, r"channel 3 \(UBOT\) has sqmean inf"),
        ({"maximum": changed(np.inf).astype(np.float32)}, r"channel \d+ \(\w+\) has minval"),
        ({"minimum": changed(-np.inf).astype(np.float32)}, r"channel 3 \(UBOT\) has minval -inf"),
        (
            {"minimum": changed(-3e38).astype(np.float32), "maximum": np.full(16, 3e38, np.float32)},
            r"channel 3 \(UBOT\)",
        ),
        ({"maximum": np.arange(16, dtype=np.float32)}, r"channel 0 \(TMQ\) has minval 0 and maxval 0"),
    ],
)
def test_statistics_that_cannot_normalize(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    write_statistics(tmp_path / "stats.h5", some_statistics())
    assert load_statistics(tmp_path).count == 5
    write_statistics(tmp_path / "stats.h5", some_statistics(**changes))
    with pytest.raises(DataError, match=problem):
        load_statistics(tmp_path)


def test_a_count_of_22_gib_is_not_read(tmp_path: Path) -> None:
    write_statistics(tmp_path / "stats.h5", some_statistics())
    with h5py.File(tmp_path / "stats.h5", "r+") as file:
        del file["climate/count"]
        file.create_dataset("climate/count", (22 << 27,), "i8")
    with pytest.raises(DataError, match="has 23622320128 bytes where at most 1024 are expected"):
        load_statistics(tmp_path)
    assert len(CHANNELS) == 16
