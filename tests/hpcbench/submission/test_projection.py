"""Projected scores: arithmetic, and how often the score of simulated submissions lies within the interval."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.measure.log_rules import PUBLISHED_SHAPES
from hpcbench.prediction.recipes import reference_points
from hpcbench.results.run_folder import RunFolder
from hpcbench.submission.measured_costs import MeasuredCosts, read_costs
from hpcbench.submission.projection import (
    Costs,
    KnownEpochs,
    Reference,
    drawn_ratios,
    olympic_rows,
    project,
    reference_epochs,
)  # fmt: skip
from hpcbench.submission.published_ratios import is_reference_recipe, published_entries, ratios_of
from staging.errors import InputError
from tests.hpcbench.submission.conftest import BuildRun

COSTS = Costs((1000.0, 1000.0, 1000.0), 5.0, 30.0, 100_000)


def test_measured_costs_count_their_nodes() -> None:
    one = MeasuredCosts("cosmoflow", "3.0.0", "closed", 64, 1, {}, COSTS)
    assert one.words.startswith("cosmoflow, 1 node, batch 64, ")
    assert replace(one, nodes=2).words.startswith("cosmoflow, 2 nodes, batch 64, ")


def test_without_spread_it_is_arithmetic() -> None:
    """20 epochs of 100 s and 5 s, and 30 s of staging: 35.5 minutes."""
    found = project(KnownEpochs((20.0, 20.0), "given"), COSTS, 10)
    assert found.middle_min == pytest.approx(35.5, rel=2e-3)
    assert (found.low_min, found.high_min) == pytest.approx((35.5, 35.5), rel=0.04)  # the published spread alone
    assert (found.epoch_s, found.mean_epochs) == pytest.approx((105, 20))


def test_faster_convergence_is_normalised_and_may_be_refused() -> None:
    known = KnownEpochs((20.0,), "given")
    assert project(known, COSTS, 10, Reference(22.0, 19.0)).middle_min == pytest.approx(35.5 * 22 / 20, rel=2e-3)
    assert project(known, COSTS, 10, Reference(22.0, 21.0)).too_fast == 1
    assert project(known, COSTS, 10, Reference(18.0, 17.0)).middle_min == pytest.approx(35.5, rel=2e-3)


def test_epochs_of_the_reference() -> None:
    known, reference = reference_epochs("cosmoflow", "3.0.0", 512)
    assert sorted(known.values) == [21] * 3 + [22] + [23] * 13 + [24] * 3
    assert (reference.mean_epochs, reference.least_epochs) == pytest.approx((22.8333, 22.1995), abs=1e-4)
    between, _ = reference_epochs("deepcam", "3.0.0", 1536)
    assert np.mean(between.values) == pytest.approx((13 + 22.625) / 2)
    with pytest.raises(InputError, match="no reference convergence point of deepcam is at batch 4096"):
        reference_epochs("deepcam", "3.0.0", 4096)


@pytest.mark.parametrize(("measured", "sigma"), [(1, 0.024), (3, 0.024), (5, 0.1)])
def test_the_score_lies_within_the_interval_as_often_as_it_says(measured: int, sigma: float) -> None:
    """Submissions of 10 runs, drawn as the 20 published ones were: 90 % within, by 400 of them to about 3 %."""
    random = np.random.default_rng(7)
    population = np.asarray(reference_epochs("cosmoflow", "3.0.0", 1024)[0].values)
    inside, trials = 0, 400
    for trial in range(trials):
        known = KnownEpochs(tuple(random.choice(population, 20)), "simulated")
        rates = 1000 * np.exp(sigma * random.standard_normal(measured + 10))
        found = project(known, Costs(tuple(rates[:measured]), 5.0, 30.0, 100_000), 10, seed=trial, draws=500)
        times = 30 + random.choice(population, 10) * (100_000 / rates[measured:] + 5)
        score = float(olympic_rows(times[None])[0]) / 60
        inside += found.low_min <= score <= found.high_min
    assert 0.84 <= inside / trials <= 0.96


def test_a_submission_takes_what_a_published_entry_took_over_the_reference() -> None:
    """Sites are drawn alike: half of the submissions take 20 epochs, and a quarter each 22 and 24."""
    known = KnownEpochs((20.0,), "given", ((1.0,), (1.1, 1.2)))
    drawn = drawn_ratios(known.ratios, 4000, np.random.default_rng(1))
    shares = [float((drawn == ratio).mean()) for ratio in (1.0, 1.1, 1.2)]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.03)
    found = project(known, COSTS, 10)
    assert found.low_min == pytest.approx(35.5, rel=0.04)
    assert found.high_min == pytest.approx((24 * 105 + 30) / 60, rel=0.04)


def test_published_entries_differ_more_where_their_recipe_is_another() -> None:
    entries = published_entries()
    own, other = (ratios_of(entries, reference_recipe) for reference_recipe in (True, False))
    assert (sum(map(len, own)), len(own), sum(map(len, other)), len(other)) == (18, 6, 16, 9)
    flat = sorted(ratio for site in own for ratio in site)
    assert (flat[0], flat[-1]) == pytest.approx((0.969, 1.231), abs=1e-3)
    assert max(ratio for site in other for ratio in site) == pytest.approx(1.963, abs=1e-3)


def test_the_recipe_of_the_reference_is_told_from_others() -> None:
    (recipe, _), *_ = reference_points("cosmoflow", "3.0.0")[512]
    assert is_reference_recipe("cosmoflow", "3.0.0", 512, dict(recipe))
    assert not is_reference_recipe("cosmoflow", "3.0.0", 512, dict(recipe) | {"dropout": 0.25})
    assert not is_reference_recipe("cosmoflow", "3.0.0", 511, dict(recipe))


def test_the_command_reads_the_recipe_from_the_log(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    run = build_run(tmp_path / "run")
    assert main(["project", str(run)]) == 0
    assert "16 published entries of 9 sites with another recipe" in " ".join(capsys.readouterr().out.split())
    (recipe, _), *_ = reference_points("cosmoflow", "3.0.0")[512]
    lines = [line for line in (run / "mllog.txt").read_text().splitlines() if not logs_any_of(line, dict(recipe))]
    stamped = json.loads(lines[0].removeprefix(":::MLLOG "))
    lines[1:1] = [":::MLLOG " + json.dumps(stamped | {"key": key, "value": value}) for key, value in recipe]
    (run / "mllog.txt").write_text("\n".join(lines) + "\n")
    assert main(["project", str(run)]) == 0
    assert "18 published entries of 6 sites with its recipe" in " ".join(capsys.readouterr().out.split())


def logs_any_of(line: str, settings: dict[str, Any]) -> bool:
    return any(f'"key": "{key}"' in line for key in settings)


def test_the_rate_is_that_after_the_warm_up_and_a_resumed_run_is_refused(tmp_path: Path, build_run: BuildRun) -> None:
    """A run that ends within an epoch has a last one that is cut short, and gaps are no cost of training."""
    folder = RunFolder(build_run(tmp_path / "run"))
    summary = folder.read_summary()
    folder.write_summary(replace(summary, warm_samples_per_s=1234.5))
    assert read_costs([folder.path]).costs.samples_per_s == (1234.5,)
    folder.write_summary(replace(summary, resumed=1))
    with pytest.raises(InputError, match="run was resumed, and its gaps would count as a cost; give runs in one piece"):
        read_costs([folder.path])


@pytest.mark.parametrize(
    ("application", "changes", "said"),
    [
        ("cosmoflow", {"data__sample_size": "16", "model__conv_layers": "3"},
         "data.sample_size is 16, that of the published set 128; give runs on samples of the published shape"),
        ("deepcam", {"data__width": "64"}, "data.width is 64, that of the published set 1152; give runs on samples"),
        ("cosmoflow", {"simulated_ranks": 4}, "its ranks were simulated (parallel.simulated_ranks 4), and its times"),
        ("cosmoflow", {"simulated_nodes": 16}, "its nodes were simulated (parallel.simulated_nodes 16), and its times"),
    ],
)  # fmt: skip
def test_runs_of_other_work_are_refused(
    tmp_path: Path, build_run: BuildRun, application: str, changes: dict[str, Any], said: str
) -> None:
    """Samples of 16^3 take a 512th of the time of published ones; times of simulated nodes are of this machine."""
    settings = {key: value for key, value in changes.items() if "__" in key}
    folder = RunFolder(build_run(tmp_path / "run", application, epochs=7, **settings))
    simulated = {key: value for key, value in changes.items() if "__" not in key}
    folder.write_summary(replace(folder.read_summary(), **simulated))
    with pytest.raises(InputError, match=re.escape(f"{folder.path}: {said}")):
        read_costs([folder.path])


def test_the_published_shapes_are_those_of_the_presets() -> None:
    for application, shape in PUBLISHED_SHAPES.items():
        data = resolve(find_application(application), "mlperf").data
        assert {key: getattr(data, key) for key in shape} == shape


def test_runs_that_are_left_out_are_named(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    done, cut, unended = (build_run(tmp_path / name) for name in ("done", "cut", "unended"))
    folder = RunFolder(cut)
    folder.write_summary(replace(folder.read_summary(), status="aborted", cause="signal", reason="SIGUSR1"))
    (unended / "summary.json").unlink()
    assert main(["project", str(done), str(cut), str(unended)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"{cut} is left out: it was cut off (SIGUSR1)" in said
    assert f"{unended} is left out: its run has not ended" in said
    assert "samples/s (1 measured)" in said
    assert main(["project", str(unended)]) == 2
    assert f"no run is left: {unended} is left out" in capsys.readouterr().err


def test_a_set_smaller_than_the_published_one_is_told(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its rate is that of the published set, but not its staging."""
    run = build_run(tmp_path / "run")
    said = "The set of the runs has 4,096 of 524,288 training samples: staging and the extra time of the first epoch"
    assert main(["project", str(run)]) == 0
    assert "The set of the runs" not in capsys.readouterr().out
    log = run / "mllog.txt"
    log.write_text(log.read_text().replace('"value": 524288', '"value": 4096'))
    assert main(["project", str(run)]) == 0
    assert said in " ".join(capsys.readouterr().out.split())


def test_the_command(tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(build_run(tmp_path / f"r{number}", seed=number)) for number in (1, 2)]
    assert main(["project", *runs]) == 0
    printed = capsys.readouterr().out
    assert "cosmoflow, 16 nodes, batch 512, closed:" in printed
    assert "reference convergence point of rules 3.0.0, 20 runs" in " ".join(printed.split())
    assert "published entries of" in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 100
    assert "Result not verified by MLCommons Association." in printed
    assert main(["project", *runs, "--epochs", "40", "41"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "epochs: 2 given, their scatter is pooled with the 6.7 % of published seeds" in printed
    other = str(build_run(tmp_path / "cam", application="deepcam", epochs=7))
    assert main(["project", runs[0], other]) == 2
    assert "the runs differ in application: cosmoflow in" in capsys.readouterr().err
    assert main(["project", *runs, "--epochs", "0"]) == 2
    assert "--epochs (0) must be at least 0.001" in capsys.readouterr().err
