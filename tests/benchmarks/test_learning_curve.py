"""The recorded learning curves: what the READMEs show is what was measured, and what they claim holds in it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from learning_curve import BEGIN, END, SHOWN, table

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.results.references import references

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
RECORDS = sorted(path for path in RESULTS.glob("learning_curve_*.json") if "-" not in path.stem)


def points_of(app: str, preset: str) -> list[dict[str, Any]]:
    path = RESULTS / f"learning_curve_{app}_{preset}.json"
    points: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["results"]["points"]
    return points


@pytest.mark.parametrize("path", RECORDS, ids=[path.stem for path in RECORDS])
def test_the_readme_has_the_table_of_the_record(path: Path) -> None:
    app, preset = path.stem.removeprefix("learning_curve_").split("_")
    text = (find_application(app).folder() / "README.md").read_text(encoding="utf-8")
    shown = text.split(BEGIN.format(preset=preset))[1].split(END.format(preset=preset))[0].strip()
    assert shown == table(points_of(app, preset), *SHOWN[app])


@pytest.mark.parametrize(("app", "metric", "sign"), [("cosmoflow", "mae", -1), ("deepcam", "iou", 1)])
def test_more_samples_make_a_better_network(app: str, metric: str, sign: int) -> None:
    points = points_of(app, "laptop")
    means = [statistics.fmean(point["network"][metric]) for point in points]
    assert len(points) >= 4
    assert [point["samples"] for point in points] == sorted(point["samples"] for point in points)
    assert sign * (means[-1] - means[0]) > 0
    preset = resolve(find_application(app), "laptop")
    assert preset.simulate.train_samples in {point["samples"] for point in points}


def test_cosmoflow_learns_what_its_readme_says() -> None:
    """With the preset as it is: what a reader would otherwise have to take on trust."""
    application = find_application("cosmoflow")
    (point,) = references(application, "laptop")
    preset = resolve(application, "laptop")
    assert (point.target, point.batch_size) == (preset.train.target, preset.train.local_batch_size)
    assert max(point.epochs) <= preset.schedule.t_max
    assert len(point.quality["mae"]) >= 5
    assert max(point.quality["mae"]) <= 0.26
    assert max(point.quality["mae_omega_m"]) <= 0.20
    assert statistics.fmean(point.quality["mae_sigma_8"]) <= 0.09


def test_with_augmentation_steps_bring_cosmoflow_more_than_universes() -> None:
    """From 512 to 4,096 universes the runs have as many steps, and with 8,192 twice as many."""
    points = {each["samples"]: each for each in points_of("cosmoflow", "laptop")}
    alike = [points[count] for count in (512, 1024, 2048, 4096)]
    assert len({each["samples"] * each["epochs"] for each in alike}) == 1
    means = [statistics.fmean(each["network"]["mae"]) for each in alike]
    assert max(means) - min(means) < 0.01
    assert max(points[8192]["network"]["mae"]) < min(means)


def test_the_workstation_preset_comes_close_to_its_baseline_and_misses_its_target() -> None:
    (point,) = points_of("cosmoflow", "workstation")
    network, baseline = point["network"], point["baseline"]
    assert point["samples"] == resolve(find_application("cosmoflow"), "workstation").simulate.train_samples
    target = resolve(find_application("cosmoflow"), "workstation").train.target
    assert target is not None
    assert all(max(target, baseline["mae"]) < error < 1.05 * baseline["mae"] for error in network["mae"])
    assert statistics.fmean(network["mae_n_s"]) == pytest.approx(baseline["mae_n_s"], rel=0.01)
    for name in ("mae_omega_m", "mae_sigma_8"):
        assert min(network[name]) > 1.1 * baseline[name]
