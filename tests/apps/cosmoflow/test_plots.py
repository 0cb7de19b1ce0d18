"""Plots of a CosmoFlow run show the numbers of its scores."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from apps.cosmoflow.config import PARAMETERS
from apps.cosmoflow.plots import figures, predictions, slices
from staging.errors import DataError


def test_panels_name_the_error_of_network_and_mean() -> None:
    rng = np.random.default_rng(0)
    columns = {}
    for name in PARAMETERS:
        columns[f"true_{name}"] = rng.uniform(-1, 1, 200)
        columns[f"predicted_{name}"] = columns[f"true_{name}"] + 0.25
    drawn = predictions(columns)
    for axes, name in zip(drawn.figure.axes, PARAMETERS, strict=True):
        true = columns[f"true_{name}"]
        by_mean = np.abs(true - true.mean()).mean()
        (text,) = [text.get_text() for text in axes.texts]
        assert text.split() == ["MAE", "0.250", "(mean", f"{by_mean:.3f})"]
        assert np.array_equal(axes.collections[0].get_offsets()[:, 1], columns[f"predicted_{name}"])
        diagonal = axes.lines[0]
        assert np.array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    assert "200 validation samples" in drawn.caption
    assert drawn.finding == "The error is below that of predicting the mean for 4 of 4 parameters"
    wrong = {name: values + 2.0 * name.startswith("predicted_h") for name, values in columns.items()}
    assert predictions(wrong).finding == "The error is below that of predicting the mean for 3 of 4 parameters"


def test_slices_are_titled_with_their_redshifts() -> None:
    maps = np.random.default_rng(0).random((3, 4, 8, 8)).astype(np.float32)
    config = {"simulate": {"redshifts": [3.0, 1.5, 0.5, 0.0]}}
    panels = slices(maps, config).figure.axes[:8]
    assert [axes.get_title("left") for axes in panels[:4]] == ["z = 3", "z = 1.5", "z = 0.5", "z = 0"]
    for number, axes in enumerate(panels):
        assert np.array_equal(axes.images[0].get_array(), maps[number // 4, number % 4])
    assert slices(maps[:, :1], {}).figure.axes[0].get_title("left") == "channel 0"


def test_slices_of_a_standardized_input_reach_below_zero_and_say_so() -> None:
    maps = np.random.default_rng(0).normal(size=(2, 4, 8, 8)).astype(np.float32)
    drawn = slices(maps, {"data": {"input_mean": [0.5] * 4, "input_std": [0.5] * 4}}).figure
    assert drawn.axes[0].images[0].get_clim()[0] == pytest.approx(float(maps.min()))
    assert drawn.axes[-1].get_ylabel() == "ln(1 + particles in a cell), standardized"
    plain = slices(np.abs(maps), {}).figure
    assert plain.axes[0].images[0].get_clim()[0] == 0
    assert plain.axes[-1].get_ylabel() == "ln(1 + particles in a cell)"


def test_folder_without_arrays_has_no_plots(tmp_path: Path) -> None:
    assert figures(tmp_path) == []


def test_damaged_examples(tmp_path: Path) -> None:
    np.savez(tmp_path / "examples.npz", other=np.zeros(3))
    with pytest.raises(DataError, match="lacks slice"):
        figures(tmp_path)
