"""Simulated climate samples in the published formats: weather, cyclones and rivers, labelled by the detector."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from apps.deepcam.climatology import Moment, atmosphere
from apps.deepcam.config import CHANNELS, CLASSES, Config
from apps.deepcam.cyclones import draw_confusing_lows, draw_cyclones, draw_moist_blobs
from apps.deepcam.data import files_of_sample
from apps.deepcam.detector import PUBLISHED, STRICT, detect
from apps.deepcam.fields import publish
from apps.deepcam.grid import Grid, global_grid
from apps.deepcam.rivers import add_river, draw_rivers
from apps.deepcam.statistics import STATISTICS_FILE, Statistics, file_statistics, merge_all, write_statistics
from apps.deepcam.vortices import add_vortex
from staging.errors import InputError
from staging.formats.hdf5 import write_datasets
from staging.formats.npy import write_array

Array = npt.NDArray[np.float32]

SPLITS = ("train", "validation", "test")
FIRST_YEAR, YEARS = 1996, 20
MOMENTS = YEARS * 365 * 8
STRIDE = 36093  # coprime to MOMENTS and near its golden section: even a few samples span the seasons


def samples_per_call(config: Config) -> int:
    """Number of samples that one call of ``write_sample`` makes."""
    return 1


def expected_files(config: Config, root: Path, split: str, index: int) -> list[Path]:
    """List the files that ``write_sample`` writes for this index."""
    name, _ = sample_name(split, index)
    suffix = ".npy" if config.data.format == "npy" else ".h5"
    return files_of_sample(root / split / f"{name}{suffix}")


def sample_name(split: str, index: int) -> tuple[str, Moment]:
    """Return a name in the published form ``data-YYYY-MM-DD-TT-R`` (time index TT, ensemble run R), and its moment.

    No two samples of a dataset share a name, and successive ones lie in different seasons. Raises ``InputError`` for
    an unknown split.
    """
    if split not in SPLITS:
        raise InputError(f"split '{split}' is not one of {', '.join(SPLITS)}")
    cycle, place = divmod(index, MOMENTS)
    day, hour_index = divmod(place * STRIDE % MOMENTS, 8)
    year, day_of_year = divmod(day, 365)
    noleap = date(2001, 1, 1) + timedelta(days=day_of_year)
    run = 1 + SPLITS.index(split) + len(SPLITS) * cycle
    name = f"data-{FIRST_YEAR + year}-{noleap:%m-%d}-{hour_index:02d}-{run}"
    return name, Moment(day_of_year, 3.0 * hour_index)


def generator(seed: int, split: str, index: int) -> np.random.Generator:
    """Return random numbers that depend only on seed, split and index (Philox; Salmon et al. 2011)."""
    key = np.array([seed % 2**64, SPLITS.index(split) << 56 | index], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def simulate_fields(config: Config, grid: Grid, moment: Moment, rng: np.random.Generator) -> Tensor:
    """Simulate a sample (height, width, 16) float32 on ``grid``'s device: weather, cyclones, rivers, look-alikes."""
    fields = atmosphere(grid, moment, rng)
    for river in draw_rivers(rng, config.simulate.rivers_per_sample, moment.summer, grid):
        add_river(fields, grid, river)
    cyclones = config.simulate.cyclones_per_sample
    vortices = draw_confusing_lows(rng, cyclones, grid) + draw_moist_blobs(rng, grid)
    for vortex in vortices + draw_cyclones(rng, cyclones, moment.day, grid):
        add_vortex(fields, grid, vortex)
    return publish(fields, grid, rng)


def simulate_sample(config: Config, split: str, index: int) -> tuple[Array, Array, Array]:
    """Simulate fields (height, width, 16) and the published and strict detectors' labels (height, width), float32.

    They are computed on torch's default device. The bytes depend on the device type and torch's version, not on the
    order of calls or the number of processes, as long as every process computes with one thread.
    """
    _, moment = sample_name(split, index)
    grid = global_grid(config.data.height, config.data.width, torch.get_default_device())
    sample = simulate_fields(config, grid, moment, generator(config.simulate.seed, split, index)).cpu().numpy()
    return sample, detect(sample, PUBLISHED), detect(sample, STRICT)


def write_sample(config: Config, root: Path, split: str, index: int) -> list[Path]:
    """Simulate and write one sample; return its files (see ``expected_files``)."""
    files = expected_files(config, root, split, index)
    files[0].parent.mkdir(parents=True, exist_ok=True)
    sample, labels, strict_labels = simulate_sample(config, split, index)
    if config.data.format == "npy":
        write_array(files[0], sample)
        write_array(files[1], labels.astype(np.uint8))
    else:
        datasets = {
            "climate/data": sample,
            "climate/data_stats": data_stats(sample),
            "climate/labels_0": labels,
            "climate/labels_0_stats": label_stats(labels),
            "climate/labels_1": strict_labels,
        }
        write_datasets(files[0], datasets)
    return files


def data_stats(sample: Array) -> Array:
    """Mean, maximum, minimum and standard deviation (4, 16) of the variables, float32."""
    pixels = sample.reshape(-1, len(CHANNELS))
    mean = pixels.mean(0, dtype=np.float64)
    spread = np.sqrt(np.maximum(np.square(pixels - mean.astype(np.float32)).mean(0, dtype=np.float64), 0))
    return np.stack([mean, pixels.max(0), pixels.min(0), spread]).astype(np.float32)


def label_stats(labels: Array) -> Array:
    """Mean, maximum, minimum, standard deviation and the share of each class (7, 1), float32."""
    shares = [(labels == label).mean() for label in range(len(CLASSES))]
    row = [labels.mean(dtype=np.float64), labels.max(), labels.min(), labels.std(dtype=np.float64), *shares]
    return np.array(row, dtype=np.float32)[:, None]


Mapper = Callable[[Callable[[Path], Statistics], list[Path]], Iterable[Statistics]]


def finish(config: Config, root: Path, map: Mapper = map) -> None:
    """Write ``stats.h5`` of the training split; ``map`` applies a function to files in order, in parallel or not."""
    suffix = ".npy" if config.data.format == "npy" else ".h5"
    files = sorted((root / "train").glob(f"data-*{suffix}"))
    if files:
        write_statistics(root / STATISTICS_FILE, merge_all(map(file_statistics, files)))
