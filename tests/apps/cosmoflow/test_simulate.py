"""Simulated universes: conservation, growth, reproducible bytes, published names and order, size when compressed."""

from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from apps.cosmoflow.config import PARAMETERS, Config
from apps.cosmoflow.cosmology import PLANCK_2015, Cosmology
from apps.cosmoflow.fields import linear_field, power_spectra
from apps.cosmoflow.samples import read_sample
from apps.cosmoflow.simulate import (
    Randomness,
    Universe,
    evolve,
    expected_files,
    samples_per_call,
    simulate_universe,
    write_sample,
)
from apps.cosmoflow.universe import split_universe, sub_volume, write_universe_hdf5
from hpcbench.application import find_application
from hpcbench.data.simulate import simulate_dataset
from staging.errors import DataError, InputError

PLANCK = Cosmology(*PLANCK_2015)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As the harness runs the simulator."""
    torch.set_num_threads(1)


def small(universe: int = 16, sample: int = 8, **simulate: object) -> Config:
    config = Config()
    config.data.sample_size = sample
    config.model.conv_layers = 3
    config.simulate.universe_size = universe
    config.simulate.train_samples, config.simulate.validation_samples = 16, 8
    for key, value in simulate.items():
        setattr(config.simulate, key, value)
    config.validate()
    return config


@pytest.mark.parametrize("per_cell", [1, 8])
def test_every_snapshot_holds_all_particles(per_cell: int) -> None:
    counts = simulate_universe(small(particles_per_cell=per_cell), "train", 0).counts
    assert counts.dtype == np.int16
    assert counts.shape == (16, 16, 16, 4)
    assert counts.sum(axis=(0, 1, 2), dtype=np.int64).tolist() == [per_cell * 16**3] * 4


def test_undisplaced_particles_scatter_nearly_as_a_poisson_process() -> None:
    """A cell draws from eight Lagrangian cells with probability 1/8 each: variance 7/8, where Poisson has 1."""
    counts = evolve(Cosmology(0.3, 1e-9, 1.0, 70.0), small(32, 32).simulate, Randomness(0, "train", 0)).double()
    assert counts[..., 0].var().item() == pytest.approx(7 / 8, rel=0.03)
    power, _ = power_spectra((counts[..., 0] - 1)[None])
    assert power[0, :2].mean() < 0.05 * power[0, -2:].mean()  # and large scales are quieter than Poisson


@pytest.mark.parametrize("redshift", [3.0, 1.5, 0.5])
def test_large_scales_grow_from_one_initial_field_as_linear_theory_says(redshift: float) -> None:
    config = small(64, 64, cell_mpc_h=16.0, redshifts=[redshift] * 4)
    random = Randomness(7, "train", 3)
    linear = torch.fft.irfftn(linear_field(random.normal(64, 64, 64), PLANCK, 16.0), s=(64, 64, 64))
    counts = evolve(PLANCK, config.simulate, random)[..., 0].float() - 1
    (auto, cross, _), number = power_spectra(torch.stack([linear, counts]))
    large = slice(0, 4)  # k up to 0.025 h/Mpc, where displacements are short against the wave
    grown = (cross * number)[large].sum() / (auto * number)[large].sum()
    assert grown.item() == pytest.approx(PLANCK.growth_first(redshift), rel=0.03)


def test_labels_are_uniform_and_differ_between_splits_indices_and_seeds() -> None:
    labels = np.stack([Randomness(1, "train", index).label() for index in range(2000)])
    assert labels.dtype == np.float32
    assert labels.min() >= -1
    assert labels.max() <= 1
    np.testing.assert_allclose(labels.mean(axis=0), 0, atol=4 / math.sqrt(3 * 2000))
    np.testing.assert_allclose(np.abs(labels).mean(axis=0), 0.5, atol=4 / math.sqrt(12 * 2000))
    np.testing.assert_allclose(np.corrcoef(labels.T), np.eye(4), atol=4 / math.sqrt(2000))
    first = {
        tuple(Randomness(seed, split, i).label()) for seed in (1, 2) for split in ("train", "test") for i in (0, 1)
    }
    assert len(first) == 8


@pytest.mark.slow
def test_same_bytes_in_any_order_and_with_any_number_of_processes(tmp_path: Path) -> None:
    config = small()
    together = tmp_path / "processes"
    simulate_dataset(find_application("cosmoflow"), config, together, processes=2, quiet=True)
    alone = tmp_path / "alone"
    for split, index in (("validation", 0), ("train", 1), ("train", 0)):
        for path in write_sample(config, alone, split, index):
            assert path.read_bytes() == (together / path.relative_to(alone)).read_bytes()
    assert len(list(together.rglob("*.tfrecord"))) == len(list(alone.rglob("*.tfrecord"))) == 24


def test_a_universe_and_its_published_cut_tile_in_the_published_order(tmp_path: Path) -> None:
    config = small(24, 8)
    files = write_sample(config, tmp_path, "train", 5)
    assert samples_per_call(config) == len(files) == 27
    universe = simulate_universe(config, "train", 5)
    rebuilt = np.zeros_like(universe.counts)
    for number, path in enumerate(files):
        assert path.name.endswith(f"_{number:03d}.tfrecord")
        ix, iy, iz = number // 9, number // 3 % 3, number % 3
        counts, label = read_sample(path, config.data)
        rebuilt[ix * 8 : ix * 8 + 8, iy * 8 : iy * 8 + 8, iz * 8 : iz * 8 + 8] = counts
        np.testing.assert_array_equal(label, universe.label)
    np.testing.assert_array_equal(rebuilt, universe.counts)


def test_the_published_universe_is_cut_into_64() -> None:
    assert sub_volume(0, 512, 128) == (slice(0, 128),) * 3
    ix, iy, iz = 2, 0, 3
    expected = (slice(256, 384), slice(0, 128), slice(384, 512))
    assert sub_volume((ix * 4 + iy) * 4 + iz, 512, 128) == expected


@pytest.fixture
def universe_file(tmp_path: Path) -> tuple[Path, Universe]:
    universe = simulate_universe(small(), "train", 0)
    folder = tmp_path / "21688988"
    folder.mkdir()
    path = folder / "univ_ics_2019-03_a10177483.hdf5"
    write_universe_hdf5(path, universe.counts, universe.label, [3.0, 1.5, 0.5, 0.0])
    return path, universe


def test_universe_file_has_the_published_keys(universe_file: tuple[Path, Universe]) -> None:
    path, universe = universe_file
    with h5py.File(path) as file:
        assert file["full"].shape == (16, 16, 16, 4)
        assert file["full"].dtype == np.int16
        assert file["unitPar"].dtype == np.float32
        np.testing.assert_array_equal(file["full"][()], universe.counts)
        np.testing.assert_allclose(file["physPar"][()], np.array(PLANCK_2015) * (1 + 0.3 * universe.label))
        assert [name.decode() for name in file["namePar"][()]] == list(PARAMETERS)
        assert file["redshifts"][()].tolist() == [3.0, 1.5, 0.5, 0.0]


@pytest.mark.parametrize("form", ["tfrecord", "hdf5", "npy"])
def test_splitting_a_universe_file_gives_the_published_names(
    universe_file: tuple[Path, Universe], tmp_path: Path, form: str
) -> None:
    path, universe = universe_file
    config = small()
    config.data.format = form  # type: ignore[assignment]
    files = split_universe(path, tmp_path / "train", config)
    suffix = {"tfrecord": ".tfrecord", "hdf5": ".hdf5", "npy": "_data.npy"}[form]
    assert [file.name for file in files] == [f"21688988_univ_ics_2019-03_a10177483_{i:03d}{suffix}" for i in range(8)]
    counts, label = read_sample(files[6], config.data)  # ix 1, iy 1, iz 0
    np.testing.assert_array_equal(counts, universe.counts[8:, 8:, :8])
    np.testing.assert_array_equal(label, universe.label)


def test_a_universe_that_is_not_a_whole_number_of_samples_is_refused(universe_file: tuple[Path, Universe]) -> None:
    path, _ = universe_file
    config = small(96, 32)
    with pytest.raises(DataError, match=r"'full' has shape \(16, 16, 16, 4\).*multiple of data.sample_size \(32\)"):
        split_universe(path, path.parent, config)


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
def test_counts_beyond_int16_are_refused_in_a_universe_file(tmp_path: Path, dtype: type[np.integer]) -> None:
    path = tmp_path / "universe.hdf5"
    with h5py.File(path, "w") as file:
        file["full"] = np.full((8, 8, 8, 4), 40_000, dtype=dtype)
        file["unitPar"] = np.zeros(4, np.float32)
    with pytest.raises(DataError, match=r"counts beyond int16 \(largest 40000\)"):
        split_universe(path, tmp_path, small())


def test_too_many_particles_for_int16_are_refused() -> None:
    config = Config()
    config.simulate.universe_size, config.simulate.particles_per_cell = 2, 36**3
    with pytest.raises(InputError, match=r"more than int16 can count \(32767\); lower simulate.particles_per_cell"):
        simulate_universe(config, "train", 0)


def test_impossible_physics_is_refused_before_any_file_is_touched() -> None:
    with pytest.raises(InputError, match=r"particles_per_cell \(2\) must be a cube number"):
        small(particles_per_cell=2)
    with pytest.raises(InputError, match=r"cell_mpc_h \(0\) must be above 0"):
        small(cell_mpc_h=0)
    with pytest.raises(InputError, match=r"redshifts\[3\] \(-1.0\) must be at least 0"):
        small(redshifts=[3.0, 1.5, 0.5, -1.0])


@pytest.mark.parametrize(
    "cell", [pytest.param(2.0, marks=pytest.mark.slow), 4.0, pytest.param(8.0, marks=pytest.mark.slow)]
)
def test_gzip_samples_are_near_the_published_mean_size(tmp_path: Path, cell: float) -> None:
    """1.7 TB over 524288 + 65536 samples is 2.83 MB (or 2.88); a set that is easier to stage would flatter."""
    config = small(128, 128, cell_mpc_h=cell)
    (path,) = write_sample(config, tmp_path, "train", 0)
    assert expected_files(config, tmp_path, "train", 0) == [path]
    assert 2.5e6 < path.stat().st_size < 3.3e6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator that torch can use")
def test_an_accelerator_agrees_in_distribution() -> None:
    config = small(64, 64, cell_mpc_h=8.0)
    device = torch.accelerator.current_accelerator()
    with torch.device(device):
        first, again = (simulate_universe(config, "train", 0) for _ in range(2))
    np.testing.assert_array_equal(first.counts, again.counts)
    host = simulate_universe(config, "train", 0)
    np.testing.assert_array_equal(first.label, host.label)
    assert first.counts.sum(axis=(0, 1, 2), dtype=np.int64).tolist() == [64**3] * 4
    spectra = [
        power_spectra(torch.from_numpy(universe.counts).permute(3, 0, 1, 2).double() - 1) for universe in (first, host)
    ]
    number = spectra[0][1][8:]
    ratio = spectra[0][0][0, 8:] / spectra[1][0][0, 8:]
    assert ((ratio - 1) / (4 / number).sqrt()).abs().max() < 5
