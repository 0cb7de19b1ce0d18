"""A whole universe as published (HDF5 ``full`` and ``unitPar``), and how it is cut into samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apps.cosmoflow.config import PARAMETERS, Config
from apps.cosmoflow.cosmology import parameters_from_label
from apps.cosmoflow.samples import SUFFIXES, Counts, Label, read_counts, read_label, read_sample, write_sample
from staging.errors import DataError
from staging.formats.hdf5 import describe, write_datasets


def write_universe_hdf5(path: Path, counts: Counts, label: Label, redshifts: list[float]) -> None:
    """Write counts (N, N, N, C) int16 as ``full`` and the label as ``unitPar``, with datasets that explain them.

    ``physPar`` holds Omega_m, sigma_8, n_s and H_0 (km/s/Mpc), ``namePar`` their names, ``redshifts`` the channels'.
    """
    arrays: dict[str, NDArray[Any]] = {
        "full": counts,
        "unitPar": label,
        "physPar": parameters_from_label(label),
        "namePar": np.array(PARAMETERS, dtype="S"),
        "redshifts": np.array(redshifts, dtype=np.float64),
    }
    write_datasets(path, arrays)


def split_universe(path: Path, folder: Path, config: Config) -> list[Path]:
    """Cut the universe at ``path`` into samples of ``data.sample_size`` below ``folder``, reading one at a time.

    Names are ``<subfolder>_<file>_<iii>`` as in the MLPerf HPC reference (mlcommons/hpc), where the subfolder is the
    one that holds the universe. Returns the files with the counts, in the order of their numbers; existing ones are
    kept. Raises ``DataError`` for a form other than the published one, a universe that is not a whole number of samples
    wide, and an existing file of the same name that holds something else.
    """
    size = universe_size(path, config)
    label = read_label(path, "unitPar")
    folder.mkdir(parents=True, exist_ok=True)
    files = counts_files(folder, path.parent.name, path.stem, config, size)
    shape = (size, size, size, config.data.channels)
    for number, target in enumerate(files):
        part = read_counts(path, "full", shape, sub_volume(number, size, config.data.sample_size))
        if target.exists():
            check_same(target, part, label, config)
        else:
            write_sample(target, part, label, config.data)
    return files


def check_same(target: Path, counts: Counts, label: Label, config: Config) -> None:
    """Raise ``DataError`` unless the sample at ``target`` holds these ``counts`` and this ``label``."""
    change = "choose another --out, or remove it"
    try:
        held = read_sample(target, config.data)
    except DataError as error:
        raise DataError(target, f"is in the way of a sample, and {error.problem}", change) from None
    if not (np.array_equal(held[0], counts) and np.array_equal(held[1], label)):
        raise DataError(target, "is in the way of a sample, and holds other counts or another label", change)


def universe_size(path: Path, config: Config) -> int:
    """Cells along an edge of the universe at ``path``; ``DataError`` unless a multiple of ``data.sample_size``."""
    shape = describe(path).get("full", ((), ""))[0]
    size = shape[0] if shape else 0
    if not size or shape != (size, size, size, config.data.channels) or size % config.data.sample_size:
        raise DataError(
            path,
            f"dataset 'full' has shape {shape or 'none'} where (N, N, N, {config.data.channels}) is expected with N a "
            f"multiple of data.sample_size ({config.data.sample_size})",
            "change data.sample_size or data.channels",
        )
    return size


def sub_volume(number: int, universe_size: int, sample_size: int) -> tuple[slice, slice, slice]:
    """Return the slices of sub-volume ``number``: the first axis varies slowest, i = (ix * n + iy) * n + iz."""
    index = np.unravel_index(number, (universe_size // sample_size,) * 3)
    x, y, z = (slice(int(i) * sample_size, (int(i) + 1) * sample_size) for i in index)
    return x, y, z


def counts_files(folder: Path, subfolder: str, stem: str, config: Config, size: int | None = None) -> list[Path]:
    """Files with the counts of every sub-volume of one universe, in the order of their numbers."""
    number = ((size or config.simulate.universe_size) // config.data.sample_size) ** 3
    suffix = SUFFIXES[config.data.format]
    return [folder / f"{subfolder}_{stem}_{i:03d}{suffix}" for i in range(number)]
