"""What the page of each application must say of model, metrics and samples, computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from statistics import fmean
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apps import cosmoflow, deepcam
from apps.cosmoflow import baselines as cosmoflow_baselines
from apps.cosmoflow import plots as cosmoflow_plots
from apps.deepcam import baselines as deepcam_baselines
from apps.deepcam import plots as deepcam_plots
from apps.deepcam.config import CLASSES
from apps.deepcam.model import DeepCAM

SIDES = (16, 8, 4)
"""Cells along each axis before the three convolutions of CosmoFlow's smoke preset, each of which halves them."""
WIDTH_FACTOR, MIDDLE_BLOCKS, IMAGE = 0.25, 1, (1, 16, 48, 64)
"""DeepCAM's smoke preset."""
Shapes = list[tuple[int, ...]]
Scores = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ApplicationPage:
    """One application, as the page of a run of its smoke preset shows it."""

    package: ModuleType
    plots: ModuleType
    baselines: Callable[[Any], dict[str, dict[str, float]]]
    title: str
    metric: str
    """As in ``epochs.csv``."""
    metric_label: str
    metric_key: str
    """As in the official log."""
    target: float
    """That no short run reaches."""
    better: str
    parameters: int
    """For the run that leaves no checkpoint to count in; the others are counted."""
    forward_flops: Callable[[Shapes], tuple[float, float]]
    """From the shapes of parameters: operations of a forward pass of one sample, and of its first layer alone."""
    metrics: Callable[[Scores], dict[str, float]]
    """All metrics from columns of ``scores.npz``, each (samples,)."""
    captions: Mapping[str, str]
    """Captions that have numbers, by key; ``{samples}`` stands for the number of validation samples."""
    of_metrics: frozenset[str] = frozenset()
    """The ones of figures that need no scores of samples, so that an aborted run has them, too."""

    def beats(self, score: float, other: float) -> bool:
        """Whether ``score`` is the better one."""
        return score < other if self.better == "lower" else score > other

    def best(self, scores: Any) -> float:
        """The best of a column of scores."""
        return float(scores.min() if self.better == "lower" else scores.max())


def cosmoflow_flops(shapes: Shapes) -> tuple[float, float]:
    """Two operations for each product."""
    convolutions = [shape for shape in shapes if len(shape) == 5]
    each = [2 * prod(shape) * side**3 for shape, side in zip(convolutions, SIDES, strict=True)]
    return sum(each) + sum(2 * prod(shape) for shape in shapes if len(shape) == 2), each[0]


def deepcam_flops(shapes: Shapes) -> tuple[float, float]:
    """Two operations for each product: weights times the pixels that they are applied to, layer by layer."""
    with torch.device("meta"):
        model = DeepCAM(IMAGE[1], WIDTH_FACTOR, MIDDLE_BLOCKS)
    counted: list[float] = []

    def count(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        # A transposed convolution applies its weights to each pixel of its input, another for each of its output.
        pixels = inputs[0] if isinstance(layer, nn.ConvTranspose2d) else output
        counted.append(2 * layer.weight.numel() * prod(pixels.shape[2:]))

    layers = [each for each in model.modules() if isinstance(each, nn.Conv2d | nn.ConvTranspose2d)]
    assert sorted(tuple(each.weight.shape) for each in layers) == sorted(each for each in shapes if len(each) == 4)
    for each in layers:
        each.register_forward_hook(count)
    model(torch.empty(IMAGE, device="meta"))
    return sum(counted), counted[0]


def cosmoflow_metrics(columns: Scores) -> dict[str, float]:
    """Means of the errors of each parameter, and the mean of those."""
    found = {f"mae_{name.removeprefix('error_')}": fmean(column) for name, column in columns.items() if "error" in name}
    return {**found, "mae": fmean(found.values())}


def deepcam_metrics(columns: Scores) -> dict[str, float]:
    """Area where prediction and label agree over the area that either covers; 1 where both have none."""
    found: dict[str, float] = {}
    per_image = []
    for name in CLASSES:
        hits, wrong, missed = (columns[f"{count}_{name}"] for count in ("tp", "fp", "fn"))
        union = hits + wrong + missed
        images = np.array([hit / area if area else 1.0 for hit, area in zip(hits, union, strict=True)])
        per_image.append(images)
        found[f"iou_{name}"] = sum(hits) / sum(union) if sum(union) else 1.0
        if name != "background":
            held = hits + missed > 0
            found[f"iou_present_{name}"] = fmean(images[held]) if held.any() else float("nan")
            found[f"share_{name}"] = fmean(held)
    return {**found, "iou": fmean(map(fmean, per_image))}


PAGES = {
    "cosmoflow": ApplicationPage(
        package=cosmoflow,
        plots=cosmoflow_plots,
        baselines=cosmoflow_baselines.baselines,
        title="Regression of cosmological parameters from 3-D matter density",
        metric="mae",
        metric_label="MAE",
        metric_key="eval_error",
        target=1e-9,
        better="lower",
        parameters=59_612,
        forward_flops=cosmoflow_flops,
        metrics=cosmoflow_metrics,
        captions={
            "predictions": "Each dot is one of {samples} validation samples, in labels scaled to [-1, 1]. A perfect "
            "network lies on the diagonal; one that has learned nothing lies on the dashed line. In brackets: the "
            "error of predicting the mean of these samples.",
            "slices": "One plane of cells through each of the first validation samples, as the network sees them; a "
            "row is one sample. Time runs from left to right, from high redshift z to today (z = 0): matter falls "
            "together into filaments and knots.",
        },
    ),
    "deepcam": ApplicationPage(
        package=deepcam,
        plots=deepcam_plots,
        baselines=deepcam_baselines.baselines,
        title="Segmentation of extreme weather in global climate fields",
        metric="iou",
        metric_label="IoU",
        metric_key="eval_accuracy",
        target=0.9999,
        better="higher",
        parameters=2_051_224,
        forward_flops=deepcam_flops,
        metrics=deepcam_metrics,
        captions={"overlap": "Intersection over union of each class over the validation set; 1 is perfect."},
        of_metrics=frozenset({"overlap"}),
    ),
}
