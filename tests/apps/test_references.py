"""Reference runs: enough seeds, claims that stand three deviations above the trivial baseline, READMEs that agree."""

import pytest

from hpcbench.application import applications
from hpcbench.config.resolve import resolve
from hpcbench.results.references import MARGIN, ReferencePoint, markdown_table, references

TRIVIAL = {"cosmoflow": "predict the mean", "deepcam": "predict background"}
OURS = [applications()[name] for name in TRIVIAL]
POINTS = [(app, point) for app in OURS for point in references(app)]
IDS = [f"{app.name}-{point.preset}" for app, point in POINTS]


def test_smoke_and_laptop_are_measured() -> None:
    assert {(app.name, point.preset) for app, point in POINTS} >= {
        (name, preset) for name in TRIVIAL for preset in ("smoke", "laptop")
    }


@pytest.mark.parametrize(("app", "point"), POINTS, ids=IDS)
def test_every_seed_reached_the_target_of_the_preset(app, point: ReferencePoint) -> None:  # type: ignore[no-untyped-def]
    config = resolve(app, point.preset)
    assert point.target == config.train.target
    assert point.batch_size == config.train.local_batch_size * config.train.accumulation
    assert len(set(point.seeds)) == len(point.epochs) == len(point.seconds) >= 5
    assert max(point.epochs) <= config.train.max_epochs
    metric, better = ("mae", "lower") if app.name == "cosmoflow" else ("iou", "higher")
    assert point.better == better
    for value in point.quality[metric]:
        assert value <= point.target if better == "lower" else value >= point.target


@pytest.mark.parametrize(("app", "point"), POINTS, ids=IDS)
def test_claims_hold_by_three_deviations_over_seeds(app, point: ReferencePoint) -> None:  # type: ignore[no-untyped-def]
    assert len(point.quality) >= 2
    for metric in point.quality:
        margin = point.margin(metric, TRIVIAL[app.name])
        assert margin is not None, metric
        assert margin >= MARGIN, (metric, margin)


@pytest.mark.parametrize("app", OURS, ids=list(TRIVIAL))
def test_the_readme_shows_the_recorded_runs(app) -> None:  # type: ignore[no-untyped-def]
    text = (app.folder() / "README.md").read_text(encoding="utf-8")
    assert markdown_table(app) in text
