"""Runs as records of one DataFrame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcbench.results.records import load_runs, read_arrays, read_run, read_summary
from staging.errors import DataError, InputError


def test_summary_is_flattened_without_loss(build_run: Any) -> None:
    folder = build_run()
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    row = load_runs([folder]).iloc[0]
    assert {name: row[f"phase_{name}_s"] for name in summary["phases_s"]} == summary["phases_s"]
    assert {name: row[f"metric_{name}"] for name in summary["metrics"]} == pytest.approx(summary["metrics"])
    assert row["baseline_predict the mean_mae"] == summary["baselines"]["predict the mean"]["mae"]
    assert row["parameters"] == summary["parameters"]
    assert sum(row[name] for name in row.index if name.startswith("phase_")) == pytest.approx(row["wall_s"])


def test_comparison_is_arithmetic(build_run: Any) -> None:
    one, two = build_run("one", samples_per_s=100.0), build_run("two", samples_per_s=250.0, world_size=4)
    frame = load_runs([one, two]).set_index("run")
    speedup = frame["samples_per_s"] / frame["samples_per_s"].iloc[0]
    assert speedup.tolist() == [1.0, 2.5]
    assert (speedup / frame["world_size"]).tolist() == [1.0, 0.625]


def test_quality_is_the_last_of_a_run_that_reached_and_the_best_of_one_that_did_not(build_run: Any) -> None:
    reached = read_summary(build_run("a", metrics={"mae": 0.29}, best=0.25))
    missed = read_summary(build_run("b", metrics={"mae": 0.35}, best=0.31, status="target_not_reached"))
    assert (reached.quality, missed.quality) == (0.29, 0.31)


def test_beating_a_baseline_follows_the_direction_of_the_metric(build_run: Any) -> None:
    error = read_summary(build_run("a", metrics={"mae": 0.29}))
    overlap = read_summary(build_run("b", application="deepcam", metrics={"iou": 0.50}))
    assert list(error.baseline_scores()) == ["ridge regression on power spectra", "predict the mean"]
    assert [error.beats(score) for score in (0.28, 0.29, 0.30)] == [False, False, True]
    assert list(overlap.baseline_scores().values()) == [0.5177, 0.4318]
    assert [overlap.beats(score) for score in overlap.baseline_scores().values()] == [False, True]
    frame = load_runs([error.folder.path, overlap.folder.path])
    assert frame["beats_baselines"].tolist() == [True, False]
    assert frame["baseline_quality"].tolist() == [0.3216, 0.5177]


def test_run_that_was_aborted_before_its_first_step_has_empty_tables(build_run: Any) -> None:
    folder = build_run(status="aborted", metrics={}, best=None, baselines={})
    (folder / "steps.csv").unlink()
    (folder / "epochs.csv").unlink()
    run = read_run(folder)
    assert run.steps.empty
    assert run.epochs.empty
    assert run.quality is None
    assert load_runs([folder]).iloc[0]["beats_baselines"] is None


def test_folder_that_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"lacks summary\.json"):
        load_runs([tmp_path])
    with pytest.raises(InputError, match="does not exist"):
        load_runs([tmp_path / "nowhere"])


def test_damaged_summary(build_run: Any) -> None:
    folder = build_run()
    text = (folder / "summary.json").read_text(encoding="utf-8")
    (folder / "summary.json").write_text(text[:100], encoding="utf-8")
    with pytest.raises(DataError, match="is not JSON"):
        load_runs([folder])


def test_damaged_arrays(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(DataError, match="cannot be read"):
        read_arrays(path, ["scores"])
    np.savez(path, columns=np.array(["a"]))
    with pytest.raises(DataError, match="lacks scores"):
        read_arrays(path, ["scores"])


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.npz"
    np.savez(path, scores=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match="cannot be read"):
        read_arrays(path, ["scores"])
