"""What a network has to beat: predicting background everywhere, and thresholds of single pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from apps.deepcam.config import CHANNELS, Config
from apps.deepcam.data import ClimateSplit, open_split
from apps.deepcam.iou import confusion_counts, iou_of_counts, metrics_from_counts

FIT_VALUES = 64 * 16 * 768 * 1152
"""Fitting reads at most so many values: 64 samples as published, 4,096 of 96 x 144 pixels. Few samples hold a cyclone,
and thresholds that are fitted to few of those scatter."""
FIT_COLUMNS = 288
"""Samples are thinned to about this many columns; single pixels need no neighbours."""


@dataclass(frozen=True)
class PixelThresholds:
    """A pixel is a cyclone if all four cyclone conditions hold, else a river if both river conditions hold."""

    cyclone_wind: float = inf
    """Least wind at 850 hPa in m/s."""
    cyclone_moisture: float = 0.0
    """Least TMQ in kg/m^2."""
    cyclone_pressure: float = inf
    """Greatest PSL in Pa."""
    cyclone_latitude: float = 40.0
    """Greatest latitude in degrees, north or south."""
    river_transport: float = inf
    """Least |V850| QREFHT in m/s kg/kg."""
    river_latitude: float = 0.0
    """Least latitude in degrees, north or south."""


WINDS = (14.0, 15.0, 16.0, 17.0, 18.0, 19.0, 20.0, 22.0, 24.0, 27.0, 30.0, 35.0)
MOISTURES = (0.0, 40.0, 45.0, 50.0, 55.0)
PRESSURES = (98e3, 98.5e3, 99e3, 99.5e3, 100e3, 100.5e3, inf)
CYCLONE_LATITUDES = (30.0, 35.0, 40.0)
TRANSPORTS = tuple(round(0.08 + 0.005 * step, 3) for step in range(40))
RIVER_LATITUDES = (0.0, 15.0, 18.0, 22.0, 26.0)


@dataclass(frozen=True, eq=False)
class Pixels:
    """The inputs of the thresholds, each (batch, height, width) float32, and the latitude (height, 1) in degrees."""

    wind: Tensor
    moisture: Tensor
    pressure: Tensor
    transport: Tensor
    latitude: Tensor

    @classmethod
    def of(cls, fields: Tensor, stride: int = 1) -> Pixels:
        """Take every ``stride``-th row and column of fields (16, height, width)."""
        rows = (torch.arange(fields.shape[1]) + 0.5) * (180 / fields.shape[1]) - 90
        u, v, q, moisture, pressure = (
            fields[CHANNELS.index(name), ::stride, ::stride][None] for name in ("U850", "V850", "QREFHT", "TMQ", "PSL")
        )
        wind = torch.hypot(u, v)
        return cls(wind, moisture, pressure, wind * q, rows[::stride, None])

    def classify(self, rule: PixelThresholds) -> Tensor:
        """Return classes (batch, height, width) uint8."""
        cyclone = (self.wind >= rule.cyclone_wind) & (self.moisture >= rule.cyclone_moisture)
        cyclone &= (self.pressure <= rule.cyclone_pressure) & (self.latitude.abs() <= rule.cyclone_latitude)
        river = (self.transport >= rule.river_transport) & (self.latitude.abs() >= rule.river_latitude)
        return torch.where(cyclone, 1, torch.where(river, 2, 0)).to(torch.uint8)


def baselines(config: Config) -> dict[str, dict[str, float]]:
    """Return metrics of both baselines on the validation split, under the names of the task's own metrics.

    The thresholds are fitted to the training split, and see all sixteen variables whatever ``data.channels`` says.
    """
    config = replace(config, data=replace(config.data, channels=list(range(len(CHANNELS)))))
    rule = fit(open_split(config, "train"))
    validation = open_split(config, "validation")
    return {
        "predict background": evaluate(validation, lambda fields: torch.zeros(1, *fields.shape[1:], dtype=torch.uint8)),
        "per-pixel thresholds": evaluate(validation, lambda fields: Pixels.of(fields).classify(rule)),
    }


def evaluate(split: ClimateSplit, classify: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """Return metrics of a rule that maps fields (16, height, width) to classes (1, height, width)."""
    counts = []
    for index in range(len(split)):
        fields, labels = split[index]
        counts.append(confusion_counts(classify(fields), labels[None]))
    return metrics_from_counts(torch.cat(counts))


def fit(split: ClimateSplit) -> PixelThresholds:
    """Choose from the grids above the thresholds with the highest mean IoU of each class on samples of ``split``."""
    windy, wet, cyclones, rivers = [], [], [], []
    for sample, index in enumerate(fitted_samples(split)):
        fields, labels = split[index]
        stride = max(1, fields.shape[2] // FIT_COLUMNS)
        pixels, labels = Pixels.of(fields, stride), labels[None, ::stride, ::stride]
        windy.append(_candidates(pixels, pixels.wind >= WINDS[0], labels == 1, sample))
        wet.append(_candidates(pixels, pixels.transport >= TRANSPORTS[0], labels == 2, sample))
        cyclones.append(float((labels == 1).sum()))
        rivers.append(float((labels == 2).sum()))
    rule = _fit_cyclones(_Candidates(*map(torch.cat, zip(*windy, strict=True))), torch.tensor(cyclones))
    return _fit_rivers(rule, _Candidates(*map(torch.cat, zip(*wet, strict=True))), torch.tensor(rivers))


def fitted_samples(split: ClimateSplit) -> list[int]:
    """Samples of ``split`` that thresholds are fitted to: evenly spaced, as many as ``FIT_VALUES`` allows."""
    most = max(1, FIT_VALUES // split[0][0].numel())
    return [int(index) for index in np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).astype(int))]


class _Candidates(NamedTuple):
    """Pixels that exceed the lowest threshold of a class, each (pixels,); ``hit`` where they are of that class."""

    wind: Tensor
    moisture: Tensor
    pressure: Tensor
    transport: Tensor
    latitude: Tensor
    hit: Tensor
    sample: Tensor


def _candidates(pixels: Pixels, where: Tensor, hit: Tensor, sample: int) -> _Candidates:
    latitude = pixels.latitude.abs().expand_as(pixels.wind)
    numbers = torch.full_like(hit, sample, dtype=torch.int64)
    columns = (pixels.wind, pixels.moisture, pixels.pressure, pixels.transport, latitude, hit, numbers)
    return _Candidates(*(column[where] for column in columns))


def _fit_cyclones(pixels: _Candidates, actual: Tensor) -> PixelThresholds:
    best, rule = _iou(torch.zeros(len(actual), 1), torch.zeros(len(actual), 1), actual), PixelThresholds()
    for moisture, pressure, latitude in product(MOISTURES, PRESSURES, CYCLONE_LATITUDES):
        allowed = (pixels.moisture >= moisture) & (pixels.pressure <= pressure) & (pixels.latitude <= latitude)
        scores = _scores(pixels, allowed, pixels.wind, WINDS, actual)
        if scores.max() > best:
            best, wind = scores.max(), WINDS[int(scores.argmax())]
            rule = PixelThresholds(wind, moisture, pressure, latitude)
    return rule


def _fit_rivers(rule: PixelThresholds, pixels: _Candidates, actual: Tensor) -> PixelThresholds:
    best = _iou(torch.zeros(len(actual), 1), torch.zeros(len(actual), 1), actual)
    for latitude in RIVER_LATITUDES:
        scores = _scores(pixels, pixels.latitude >= latitude, pixels.transport, TRANSPORTS, actual)
        if scores.max() > best:
            best, transport = scores.max(), TRANSPORTS[int(scores.argmax())]
            rule = replace(rule, river_transport=transport, river_latitude=latitude)
    return rule


def _scores(
    pixels: _Candidates, allowed: Tensor, value: Tensor, thresholds: tuple[float, ...], actual: Tensor
) -> Tensor:
    """Mean IoU of a class for each threshold of ``value``, from counts of pixels between neighbouring thresholds."""
    steps, samples = len(thresholds), len(actual)
    place = torch.bucketize(value[allowed], torch.tensor(thresholds), right=True) - 1
    place += steps * pixels.sample[allowed]
    between = torch.bincount(place, minlength=samples * steps).view(samples, steps)
    hits = torch.bincount(place[pixels.hit[allowed]], minlength=samples * steps).view(samples, steps)
    return _iou(hits.flip(1).cumsum(1).flip(1), between.flip(1).cumsum(1).flip(1), actual)


def _iou(hits: Tensor, predicted: Tensor, actual: Tensor) -> Tensor:
    """Mean over samples of the IoU, (thresholds,), from counts (samples, thresholds) and ``actual`` (samples,)."""
    counts = torch.stack((hits, predicted - hits, actual[:, None] - hits), dim=-1)
    return iou_of_counts(counts.double()).mean(0)
