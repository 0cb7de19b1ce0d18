"""Intersection over union of segmentations: confusion counts per sample, and the metrics computed from them."""

from __future__ import annotations

import torch
from torch import Tensor

from apps.deepcam.config import CLASSES


def confusion_counts(prediction: Tensor, target: Tensor) -> Tensor:
    """Count true positives, false positives and false negatives of each class in each sample.

    ``prediction`` and ``target`` are (batch, height, width) class numbers of any integer dtype. The result is
    (batch, 3, 3) float64, indexed by sample, class and (tp, fp, fn), on the device of the inputs; nothing waits for
    the device.
    """
    counts = []
    for label in range(len(CLASSES)):
        predicted, actual = prediction == label, target == label
        hits = (predicted & actual).sum(dim=(1, 2))
        counts.append(torch.stack((hits, predicted.sum(dim=(1, 2)) - hits, actual.sum(dim=(1, 2)) - hits), dim=1))
    return torch.stack(counts, dim=1).double()


def iou_of_counts(counts: Tensor) -> Tensor:
    """tp / (tp + fp + fn) over the last axis, float64; 0/0 is 1 (MLPerf HPC reference, mlcommons/hpc)."""
    union = counts.sum(dim=-1)
    return torch.where(union > 0, counts[..., 0] / union.clamp(min=1), torch.ones_like(union))


def metrics_from_counts(counts: Tensor) -> dict[str, float]:
    """Metrics of a set from the counts (samples, 3, 3) of all its samples.

    ``iou`` is the published metric: the mean over samples of the mean over classes. It counts a class that is absent
    from prediction and target as perfect, which flatters background. So ``iou_<class>`` is the intersection over union
    over the pixels of the whole set, ``share_<class>`` the share of samples that hold the class, and
    ``iou_present_<class>`` the mean over only those samples (NaN if there are none).
    """
    counts = counts.double()
    per_sample = iou_of_counts(counts)
    whole_set = iou_of_counts(counts.sum(dim=0))
    metrics = {"iou": float(per_sample.mean())}
    for label, name in enumerate(CLASSES):
        metrics[f"iou_{name}"] = float(whole_set[label])
        if label == 0:
            continue
        present = counts[:, label, 0] + counts[:, label, 2] > 0
        metrics[f"iou_present_{name}"] = float(per_sample[present, label].mean())
        metrics[f"share_{name}"] = float(present.double().mean())
    return metrics
