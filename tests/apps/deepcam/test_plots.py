"""Plots of a DeepCAM run show its maps, its outlines and its overlaps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from apps.deepcam.plots import class_overlap, figures, maps
from hpcbench.results.records import Run
from hpcbench.results.run_folder import RunFolder
from hpcbench.results.summary import Summary
from staging.errors import InputError


def arrays() -> dict[str, np.ndarray]:
    """Four samples of 24 x 32; the second and the last hold both classes."""
    rng = np.random.default_rng(0)
    label = np.zeros((4, 24, 32), np.uint8)
    label[1, 4:8, 4:8], label[1, 12:14, 3:20] = 1, 2
    label[2, 12:14, 3:20] = 2
    label[3, 4:8, 4:8], label[3, 12:14, 3:20] = 1, 2
    pressure = rng.uniform(95_000, 103_000, (4, 24, 32)).astype(np.float32)
    return {"TMQ": rng.random((4, 24, 32)), "PSL": pressure, "wind": pressure, "label": label, "prediction": label}


def test_maps_show_the_samples_with_most_in_them_in_their_units() -> None:
    data = arrays()
    drawn = maps(data)
    assert drawn is not None
    panels = [axes for axes in drawn.figure.axes if axes.images and axes.get_ylim() == (-90, 90)]
    assert len(panels) == 6
    shown = [axes.images[0].get_array() for axes in panels]
    for pair, sample in zip(range(0, 6, 2), (1, 2, 3), strict=True):
        assert np.array_equal(shown[pair], data["TMQ"][sample])
        assert np.allclose(shown[pair + 1], data["PSL"][sample] / 100)
    assert panels[0].images[0].get_extent() == [0, 360, -90, 90]
    assert panels[0].images[0].origin == "lower"


def test_maps_do_with_the_fields_that_the_model_saw() -> None:
    data = arrays()
    assert maps({name: data[name] for name in ("label", "prediction")}) is None
    assert maps({name: data[name] for name in ("wind", "label", "prediction")}) is not None


def summary() -> Summary:
    """A run that found rivers and no cyclone."""
    metrics = {"iou": 0.6, "iou_background": 0.98, "iou_tropical_cyclone": 0.0, "iou_atmospheric_river": 0.42}
    other = {"background": {"iou": 0.5, "iou_background": 0.97, "iou_tropical_cyclone": 0, "iou_atmospheric_river": 0}}
    return Summary("deepcam", "Climate", "smoke", metric="iou", better="higher", metrics=metrics, baselines=other)


def test_bars_are_the_overlaps_of_network_and_baselines() -> None:
    run = Run(RunFolder("."), summary(), pd.DataFrame(), pd.DataFrame())
    drawn = class_overlap(run)
    assert drawn is not None
    heights = [bar.get_height() for bar in drawn.figure.axes[0].patches]
    assert heights == [0.98, 0.0, 0.42, 0.97, 0, 0]
    assert drawn.finding == "The network's IoU is above that of every baseline for 2 of 3 classes"
    alone = class_overlap(replace(run, summary=replace(summary(), baselines={})))
    assert alone is not None
    assert alone.finding == ""
    assert class_overlap(replace(run, summary=Summary("deepcam", "Climate", "smoke"))) is None


def test_folder_that_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"summary\.json"):
        figures(tmp_path)
