"""Simulators on an accelerator agree in distribution with those on the processor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from apps.cosmoflow.config import Config as CosmoFlowConfig
from apps.cosmoflow.fields import power_spectra
from apps.cosmoflow.simulate import simulate_universe
from apps.deepcam.config import Config as DeepCAMConfig
from apps.deepcam.simulate import simulate_sample

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

UNIVERSES = 12
SAMPLES = 12


def test_universes_have_the_same_power(device: torch.device) -> None:
    """Same parameters, other draws: the mean ratio in each shell is one within the scatter of two samples of modes."""
    config = CosmoFlowConfig()
    config.simulate.universe_size = config.data.sample_size = 32
    config.simulate.redshifts = [3.0, 0.0]
    config.data.channels = 2
    ratios = []
    for index in range(UNIVERSES):
        spectra = []
        for where in ("cpu", device):
            universe = simulate_universe(config, "train", index, where)
            assert (universe.counts.sum(axis=(0, 1, 2), dtype=np.int64) == 32**3).all()
            counts = torch.from_numpy(universe.counts.astype(np.float32)).permute(3, 0, 1, 2)
            power, number = power_spectra(counts - 1)
            spectra.append((power[[0, 2]], universe.label))
        (host, host_label), (on_device, device_label) = spectra
        assert (host_label == device_label).all()
        ratios.append((on_device / host).log())
    found = torch.stack(ratios)
    # Each measured power has a relative variance of 2 / modes, and so their ratio one of 4 / modes.
    error = found.mean(dim=0) / (4 / number / UNIVERSES).sqrt()
    # At redshift 3 growth is all but linear, and modes are independent; today they are so on large scales only.
    assert error[0].abs().max() < 5
    assert found[:, 1].mean().abs() < 0.05


def test_the_accelerator_repeats_itself(device: torch.device) -> None:
    config = CosmoFlowConfig()
    config.simulate.universe_size = config.data.sample_size = 32
    first, second, other = (simulate_universe(config, "train", index, device).counts for index in (3, 3, 4))
    assert (first != second).mean() < 1e-3
    assert (first != other).mean() > 0.1


def test_climate_has_the_same_fields_and_classes(device: torch.device) -> None:
    """Weather is drawn on the host, so that fields differ by rounding alone, and labels where a threshold is met."""
    config = DeepCAMConfig()
    config.data.height, config.data.width = 96, 144
    shares = []
    for index in range(SAMPLES):
        fields, labels, _ = simulate_sample(config, "train", index)
        with device:
            on_device, device_labels, _ = simulate_sample(config, "train", index)
        scale = fields.std(axis=(0, 1))
        assert (np.abs(on_device - fields).mean(axis=(0, 1)) < 0.01 * scale).all()
        shares.append([[(part == label).mean() for label in range(3)] for part in (labels, device_labels)])
    host, found = np.mean(shares, axis=0)
    assert host[0] > 0.9
    np.testing.assert_allclose(found, host, rtol=0.05, atol=2e-4)
