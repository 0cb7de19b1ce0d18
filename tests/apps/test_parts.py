"""Parts of samples: those of the whole ones, with fewer bytes read, and checked as far as they are read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from apps.cosmoflow.config import Config as CosmoFlowConfig
from apps.cosmoflow.data import open_split as open_counts
from apps.cosmoflow.samples import SUFFIXES, write_sample
from apps.cosmoflow.task import build_task as cosmoflow_task
from apps.deepcam.config import Config as DeepCAMConfig
from apps.deepcam.data import open_split as open_fields
from apps.deepcam.task import build_task as deepcam_task
from hpcbench.data.spatial_part import part_of
from hpcbench.parallel.spatial.layers import own_part
from staging.errors import DataError
from staging.formats.hdf5 import write_datasets
from staging.formats.npy import write_array

FORMS = [("cosmoflow", form) for form in ("npy", "hdf5", "hdf5 gzip", "tfrecord", "tfrecord gzip")]
FORMS += [("deepcam", "npy"), ("deepcam", "hdf5")]
SMALLER = [case for case in FORMS if case[1] in ("npy", "hdf5")]
"""Formats of which a part is read without the rest."""
SPLITS = [(2,), (3,), (2, 2), (1, 3)]
IO = Path("/proc/self/io")

Samples = Any
Open = Callable[[str, str], Samples]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample of each application in each format: 32^3 x 4 counts, and 80 x 160 x 16 fields."""
    root, rng = tmp_path_factory.mktemp("sets"), np.random.default_rng(3)
    counts = rng.poisson(1.0, (32, 32, 32, 4)).astype(np.int16)
    fields = rng.normal(size=(80, 160, 16)).astype(np.float32)
    labels = rng.integers(0, 3, (80, 160)).astype(np.uint8)
    for name, form in FORMS:
        folder = root / f"{name} {form}" / "train"
        folder.mkdir(parents=True)
        if name == "cosmoflow":
            data = cosmoflow(root, form).data
            write_sample(folder / f"a{SUFFIXES[data.format]}", counts, np.zeros(4, np.float32), data)
        elif form == "npy":
            write_array(folder / "data-a.npy", fields)
            write_array(folder / "label-a.npy", labels)
        else:
            write_datasets(folder / "data-a.h5", {"climate/data": fields, "climate/labels_0": labels})
    return root


def cosmoflow(root: Path, form: str) -> CosmoFlowConfig:
    config = CosmoFlowConfig()
    config.data.root, config.data.sample_size = str(root / f"cosmoflow {form}"), 32
    config.data.format = form.split(maxsplit=1)[0]  # type: ignore[assignment]
    config.data.compression = "gzip" if form.endswith("gzip") else "none"
    return config


def opened(root: Path, name: str, form: str) -> Samples:
    if name == "cosmoflow":
        return open_counts(cosmoflow(root, form), "train")
    config = DeepCAMConfig()
    config.data.root, config.data.format = str(root / f"deepcam {form}"), form  # type: ignore[assignment]
    config.data.height, config.data.width = 80, 160
    return open_fields(config, "train")


def axes(split: tuple[int, ...], ranks: tuple[int, ...]) -> Any:
    both = enumerate(zip(split, ranks, strict=True))
    return {2 + number: SimpleNamespace(size=size, rank=rank) for number, (size, rank) in both if size > 1}


def part(samples: Samples, split: tuple[int, ...], ranks: tuple[int, ...]) -> Samples:
    """The samples as the rank at these places of the axes reads them."""
    own = part_of(samples, axes(split, ranks))
    assert own is not None
    return own


def read(samples: Samples) -> int:
    """Bytes that the process asks of files while a sample is read."""
    before = int(IO.read_text().split()[1])
    samples[0]
    itself = int(IO.read_text().split()[1])
    return itself - before - (int(IO.read_text().split()[1]) - itself)


@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.parametrize("split", SPLITS)
def test_parts_are_those_of_the_whole_sample(sets: Path, name: str, form: str, split: tuple[int, ...]) -> None:
    samples = opened(sets, name, form)
    whole, target = samples[0]
    for ranks in np.ndindex(split):
        own, same = part(samples, split, ranks)[0]
        assert torch.equal(own, own_part(whole[None], axes(split, ranks))[0])
        assert torch.equal(same, target)
        layout = torch.channels_last_3d if name == "cosmoflow" else torch.channels_last
        assert own[None].is_contiguous(memory_format=layout)


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam"])
def test_what_is_prepared_of_a_part_is_the_part_of_what_is_prepared(sets: Path, name: str) -> None:
    if name == "cosmoflow":
        config = cosmoflow(sets, "npy")
        config.data.input_mean, config.data.input_std = [0.5, 0.4, 0.3, 0.2], [0.9, 0.8, 0.7, 0.6]
        task: Any = cosmoflow_task(config)
    else:
        task = deepcam_task(DeepCAMConfig())
        task.set_range(torch.arange(16.0) - 20, torch.arange(16.0) + 1)
    assert task.reads_parts(True)
    assert task.reads_parts(False)
    samples, mine = opened(sets, name, "npy"), axes((2, 2), (1, 0))
    whole, own = samples[0], part(samples, (2, 2), (1, 0))[0]
    prepared, target = task.prepare(whole[0][None], whole[1][None], torch.arange(1))
    found, same = task.prepare(own[0][None], own[1][None], torch.arange(1))
    assert torch.equal(found, own_part(prepared, mine))
    assert torch.equal(same, target)


@pytest.mark.parametrize(
    ("augment", "apply_log", "parts"),
    [(False, True, (True, True)), (True, True, (False, True)), (False, False, (False, False))],
)
def test_cosmoflow_reads_whole_what_it_turns_and_what_it_divides_by_means(
    augment: bool, apply_log: bool, parts: tuple[bool, bool]
) -> None:
    config = CosmoFlowConfig()
    config.data.augment, config.data.apply_log = augment, apply_log
    assert tuple(cosmoflow_task(config).reads_parts(training) for training in (True, False)) == parts


@pytest.mark.skipif(not IO.exists(), reason="the kernel counts no bytes in /proc/self/io")
@pytest.mark.parametrize(("name", "form"), SMALLER)
@pytest.mark.parametrize(("split", "share"), [((2,), 1 / 2), ((4,), 1 / 4), ((2, 2), 1 / 4)])
def test_a_part_is_read_without_the_rest(
    sets: Path, name: str, form: str, split: tuple[int, ...], share: float
) -> None:
    more = 4096
    if form == "hdf5" and split == (2, 2):
        share, more = 1 / 2, 65536  # HDF5 fetches short runs with what is between them, 64 KiB at a time
    samples = opened(sets, name, form)
    inputs = samples[0][0].nbytes
    rest = read(samples) - inputs
    own = read(part(samples, split, (0,) * len(split)))
    assert own <= share * inputs + rest + more
    assert own >= inputs / np.prod(split)


def damage(path: Path, key: str, place: tuple[int, ...], value: float) -> None:
    """Change one number of a file."""
    if path.suffix == ".npy":
        array = np.load(path)
        array[place] = value
        np.save(path, array)
    else:
        with h5py.File(path, "r+") as file:
            file[key][place] = value


@pytest.mark.parametrize("form", ["npy", "hdf5"])
def test_a_value_that_is_not_finite_is_told_with_its_place_in_the_whole(sets: Path, tmp_path: Path, form: str) -> None:
    shutil.copytree(sets / f"deepcam {form}", tmp_path / f"deepcam {form}")
    samples = opened(tmp_path, "deepcam", form)
    damage(samples.files[0], "climate/data", (70, 100, 10), np.nan)
    for split, ranks in (((2,), (1,)), ((1, 2), (0, 1)), ((2, 2), (1, 1))):
        with pytest.raises(DataError, match="PRECT is nan at row 70, column 100; copy the file again"):
            part(samples, split, ranks)[0]
    assert part(samples, (2, 2), (1, 0))[0][0].isfinite().all()


def test_a_count_beyond_int16_in_a_part(sets: Path, tmp_path: Path) -> None:
    samples = opened(shutil.copytree(sets / "cosmoflow hdf5", tmp_path / "cosmoflow hdf5").parent, "cosmoflow", "hdf5")
    with h5py.File(samples.files[0], "r+") as file:
        counts = file["x"][...].astype(np.int32)
        counts[20, 0, 0, 0] = 2**15
        del file["x"]
        file["x"] = counts
    with pytest.raises(DataError, match=r"holds counts beyond int16 \(largest 32768\)"):
        part(samples, (2,), (1,))[0]
    part(samples, (2,), (0,))[0]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_file_cut_short_is_one_line_whichever_part_is_read(sets: Path, tmp_path: Path, name: str, form: str) -> None:
    shutil.copytree(sets / f"{name} {form}", tmp_path / f"{name} {form}")
    samples = opened(tmp_path, name, form)
    path = samples.files[0]
    path.write_bytes(path.read_bytes()[:-100])
    for rank in (0, 1):
        with pytest.raises(DataError) as error:
            part(samples, (2,), (rank,))[0]
        assert str(error.value).startswith(f"{path}: ")
        assert "\n" not in str(error.value)
