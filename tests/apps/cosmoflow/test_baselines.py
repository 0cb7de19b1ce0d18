"""Baselines: what predicting the mean must give, ridge against its closed form, and features against plain sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from apps.cosmoflow.baselines import (
    MOST_BANDS,
    PENALTIES,
    baselines,
    features_of_samples,
    features_of_split,
    fit_ridge,
    joined,
    one_point,
)
from apps.cosmoflow.config import PARAMETERS, Config
from apps.cosmoflow.data import open_split
from apps.cosmoflow.samples import Counts, Label, write_sample
from apps.cosmoflow.simulate import simulate_universe
from apps.cosmoflow.task import CosmoFlowTask


def test_ridge_is_the_closed_form_with_the_penalty_of_least_error() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(3.0, 2.0, (60, 40))
    labels = (features[:, :4] - 3) @ rng.normal(size=(4, 4)) / 8 + rng.normal(size=(60, 4)) / 3
    fit = fit_ridge(features, labels)
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    centered = labels - labels.mean(axis=0)
    candidates = [
        np.linalg.solve(scaled.T @ scaled + penalty * np.eye(40), scaled.T @ centered) for penalty in PENALTIES
    ]
    for label in range(4):
        distance = [np.abs(weights[:, label] - fit.weights[:, label]).max() for weights in candidates]
        assert min(distance) < 1e-10
        assert int(np.argmin(distance)) not in (0, len(PENALTIES) - 1)  # noise is neither fitted nor all there is


def test_ridge_finds_a_linear_law_and_ignores_constant_features() -> None:
    rng = np.random.default_rng(1)
    features = np.concatenate([rng.normal(size=(200, 6)), np.ones((200, 1))], axis=1)
    labels = 0.1 * features[:, :6] @ rng.normal(size=(6, 4))
    fit = fit_ridge(features[:150], labels[:150])
    assert np.abs(fit.predict(features[150:]) - labels[150:]).max() < 0.01
    assert np.abs(fit.predict(1e6 * features)).max() == 1.0


def test_features_are_those_of_plain_sums() -> None:
    counts = torch.from_numpy(np.random.default_rng(2).poisson(1.5, (2, 8, 8, 8)).astype(np.int16))
    (found,) = one_point(counts[None]).numpy()
    flat = counts.numpy().reshape(2, -1).astype(float)
    expected = [np.log1p(flat).mean(axis=1), np.log(np.log1p(flat).var(axis=1)), np.log(flat.var(axis=1))]
    shares = np.array([[(row == number).mean() for number in range(5)] for row in flat]).ravel()
    np.testing.assert_allclose(found, np.concatenate([*expected, shares, (flat >= 8).mean(axis=1)]), rtol=1e-10)
    (twice,) = features_of_samples(counts[None, [0, 0]])
    bands = (len(twice) - len(found)) // 3
    np.testing.assert_allclose(twice[2 * bands : 3 * bands], 1.0, rtol=1e-6)  # a channel correlates with itself


def test_samples_are_summarised_alike_alone_and_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataset(tmp_path, noise, 8, (7, 1))
    split, threads = open_split(config, "train"), torch.get_num_threads()
    alone = [features_of_samples(counts[None]).numpy()[0] for counts, _ in split]
    monkeypatch.setattr("apps.cosmoflow.baselines.BATCH_CELLS", 3 * 4 * 8**3)
    features, labels = features_of_split(split)
    np.testing.assert_allclose(features, alone, rtol=1e-6)  # transforms are in float32
    np.testing.assert_array_equal(labels, np.stack([label for _, label in split]).astype(np.float64))
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("shells", [4, 16, 64, 256])
def test_bands_keep_the_total_power(shells: int) -> None:
    weighted, modes = torch.rand(3, shells, dtype=torch.float64), torch.rand(shells, dtype=torch.float64) + 1
    bands = joined(weighted, modes)
    assert bands.shape[1] <= MOST_BANDS
    torch.testing.assert_close(joined(modes[None], modes), torch.ones(1, bands.shape[1], dtype=torch.float64))
    torch.testing.assert_close(bands[:, 0], weighted[:, 0] / modes[0])


def noise(config: Config, index: int) -> tuple[Counts, Label]:
    rng = np.random.default_rng(index)
    return rng.poisson(1.0, (8, 8, 8, 4)).astype(np.int16), rng.uniform(-1, 1, 4).astype(np.float32)


def universe(config: Config, index: int) -> tuple[Counts, Label]:
    simulated = simulate_universe(config, "train", index)
    return simulated.counts, simulated.label


def dataset(tmp_path: Path, source, size: int, numbers: tuple[int, int]) -> Config:  # type: ignore[no-untyped-def]
    config = Config()
    config.data.root = str(tmp_path)
    config.data.sample_size = config.simulate.universe_size = size
    config.simulate.cell_mpc_h, config.data.compression = 8.0, "none"
    first = 0
    for split, number in zip(("train", "validation"), numbers, strict=True):
        (tmp_path / split).mkdir()
        for index in range(first, first + number):
            write_sample(tmp_path / split / f"{index:04d}.tfrecord", *source(config, index), config.data)
        first += number
    return config


def test_pure_noise_teaches_nothing(tmp_path: Path) -> None:
    """Predicting the mean of labels uniform in [-1, 1] errs by 0.5, and noise lets no one do much better."""
    found = baselines(dataset(tmp_path, noise, 8, (200, 400)))
    error = np.sqrt(1 / 12 / 1600)
    assert found["predict the mean"]["mae"] == pytest.approx(0.5, abs=5 * error)
    assert found["ridge regression on power spectra"]["mae"] == pytest.approx(0.5, abs=0.05)


def test_power_spectra_tell_sigma_8_and_omega_m(tmp_path: Path) -> None:
    found = baselines(dataset(tmp_path, universe, 16, (160, 60)))
    ridge = found["ridge regression on power spectra"]
    assert ridge["mae_sigma_8"] < 0.2
    assert ridge["mae_omega_m"] < 0.4
    assert set(ridge) == set(CosmoFlowTask(Config()).metrics(torch.zeros(2, 12)))
    assert ridge["mae"] == pytest.approx(np.mean([ridge[f"mae_{name}"] for name in PARAMETERS]))
