"""Baselines against the values that arithmetic gives them."""

import numpy as np
import pytest
import torch

from apps.deepcam.baselines import Pixels, PixelThresholds, baselines, fit, fitted_samples
from apps.deepcam.config import CHANNELS
from apps.deepcam.data import open_split
from apps.deepcam.iou import metrics_from_counts
from apps.deepcam.simulate import write_sample


class Planted:
    """Random fields whose labels are thresholds of single pixels."""

    rule = PixelThresholds(
        cyclone_wind=20.0, cyclone_moisture=45.0, cyclone_pressure=100e3, cyclone_latitude=35.0, river_transport=0.15,
        river_latitude=22.0,
    )  # fmt: skip

    def __len__(self):
        return 6

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        fields = torch.zeros(16, 90, 120)
        for name, low, high in (
            ("U850", -30, 30), ("V850", -30, 30), ("TMQ", 20, 70), ("PSL", 97e3, 103e3), ("QREFHT", 0, 0.02),
        ):  # fmt: skip
            fields[CHANNELS.index(name)].uniform_(low, high, generator=generator)
        return fields, Pixels.of(fields).classify(self.rule)[0]


def test_fit_recovers_planted_thresholds():
    found = fit(Planted())
    assert found.cyclone_wind == Planted.rule.cyclone_wind
    assert found.cyclone_moisture == Planted.rule.cyclone_moisture
    assert found.cyclone_pressure == Planted.rule.cyclone_pressure
    assert found.cyclone_latitude == Planted.rule.cyclone_latitude
    assert found.river_transport == pytest.approx(Planted.rule.river_transport)
    assert found.river_latitude == Planted.rule.river_latitude


def test_fit_sees_a_cyclone_that_few_samples_hold():
    class Rare(Planted):
        def __len__(self):
            return 200

        def __getitem__(self, index):
            fields, labels = super().__getitem__(index % 6)
            return (fields, labels) if index in (70, 101) else (torch.zeros_like(fields), torch.zeros_like(labels))

    found = fit(Rare())
    assert (found.cyclone_wind, found.cyclone_moisture) == (Planted.rule.cyclone_wind, Planted.rule.cyclone_moisture)


@pytest.mark.parametrize(("shape", "fitted"), [((768, 1152), 64), ((192, 288), 1024), ((96, 144), 4096)])
def test_fit_reads_as_many_values_of_any_size(shape, fitted):
    class Many:
        def __len__(self):
            return 8192

        def __getitem__(self, index):
            return torch.empty(16, *shape), torch.empty(*shape)

    chosen = fitted_samples(Many())
    assert len(set(chosen)) == fitted
    assert (chosen[0], chosen[-1]) == (0, 8191)


def test_fit_predicts_nothing_where_there_is_nothing():
    class Empty(Planted):
        def __getitem__(self, index):
            fields, labels = super().__getitem__(index)
            return fields, torch.zeros_like(labels)

    assert fit(Empty()) == PixelThresholds()


def test_background_scores_its_share_and_nothing_else(small, tmp_path):
    small.data.root = str(tmp_path)
    for index in range(8):
        write_sample(small, tmp_path, "train", index)
        write_sample(small, tmp_path, "validation", index)
    found = baselines(small)
    labels = np.stack([open_split(small, "validation")[index][1].numpy() for index in range(8)])
    background = found["predict background"]
    per_sample = [((one == 0).mean() + (not (one == 1).any()) + (not (one == 2).any())) / 3 for one in labels]
    assert background["iou"] == pytest.approx(np.mean(per_sample))
    assert background["iou_background"] == pytest.approx((labels == 0).mean())
    assert background["iou_atmospheric_river"] == 0
    assert background["share_atmospheric_river"] == pytest.approx((labels == 2).any((1, 2)).mean())
    assert set(found["per-pixel thresholds"]) == set(metrics_from_counts(torch.ones(1, 3, 3)))
    assert found["per-pixel thresholds"]["iou"] > background["iou"] + 0.05
    assert found["per-pixel thresholds"]["iou_atmospheric_river"] > 0.2
    small.data.channels = [0, 7]
    for name, metrics in baselines(small).items():
        assert metrics == pytest.approx(found[name], nan_ok=True)
