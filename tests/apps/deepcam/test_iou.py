"""IoU against cases counted by hand."""

import math

import pytest
import torch

from apps.deepcam.iou import confusion_counts, metrics_from_counts


def test_counts_by_hand():
    target = torch.tensor([[[0, 0, 1], [0, 2, 2]]])
    prediction = torch.tensor([[[0, 1, 1], [0, 2, 0]]])
    counts = confusion_counts(prediction, target)
    assert counts.dtype == torch.float64
    assert counts.tolist() == [[[2, 1, 1], [1, 1, 0], [1, 0, 1]]]
    metrics = metrics_from_counts(counts)
    assert metrics["iou"] == pytest.approx((2 / 4 + 1 / 2 + 1 / 2) / 3)


def test_absent_class_is_perfect_and_a_missed_pixel_is_not():
    empty = torch.zeros(1, 4, 4, dtype=torch.uint8)
    assert metrics_from_counts(confusion_counts(empty, empty))["iou"] == 1.0
    one_pixel = empty.clone()
    one_pixel[0, 2, 3] = 1
    missed = metrics_from_counts(confusion_counts(empty, one_pixel))
    assert missed["iou"] == pytest.approx((15 / 16 + 0 + 1) / 3)
    assert missed["iou_present_tropical_cyclone"] == 0.0
    assert math.isnan(missed["iou_present_atmospheric_river"])


def test_published_metric_is_a_mean_of_samples_and_class_metric_counts_pixels():
    target = torch.zeros(2, 1, 8, dtype=torch.uint8)
    target[0, 0, :4] = 2
    target[1, 0, :1] = 2
    prediction = torch.zeros_like(target)
    prediction[0, 0, :2] = 2
    prediction[1, 0, :1] = 2
    metrics = metrics_from_counts(confusion_counts(prediction, target))
    assert metrics["iou"] == pytest.approx(((4 / 6 + 1 + 2 / 4) / 3 + 1) / 2)
    assert metrics["iou_atmospheric_river"] == pytest.approx(3 / 5)
    assert metrics["iou_present_atmospheric_river"] == pytest.approx((0.5 + 1) / 2)
    assert metrics["share_atmospheric_river"] == 1.0
    assert metrics["share_tropical_cyclone"] == 0.0


def test_against_independent_set_arithmetic():
    generator = torch.Generator().manual_seed(3)
    target = torch.randint(3, (5, 7, 9), generator=generator)
    prediction = torch.randint(3, (5, 7, 9), generator=generator)
    counts = confusion_counts(prediction, target)
    for sample in range(5):
        for label in range(3):
            wanted = set(torch.nonzero(target[sample] == label).flatten(1).mv(torch.tensor([100, 1])).tolist())
            found = set(torch.nonzero(prediction[sample] == label).flatten(1).mv(torch.tensor([100, 1])).tolist())
            expected = [len(wanted & found), len(found - wanted), len(wanted - found)]
            assert counts[sample, label].tolist() == expected
