"""The matrix of a study, and in which order its runs are made."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.results.summary import Summary
from hpcbench.study.definition import Borrow, Study
from hpcbench.study.lr_search import Choice
from hpcbench.study.plan import (
    PlannedRun,
    Point,
    all_runs,
    choice,
    geometry,
    left,
    next_runs,
    points,
    possible_names,
    processes_per_run,
    rate,
    study_run,
)
from hpcbench.study.run_status import RunStatus, Status
from staging.errors import InputError


def reached(epochs: int, best: float = 0.3) -> RunStatus:
    summary = Summary("cosmoflow", "", "smoke", epochs_to_target=epochs, best=best, metric="mae")
    return RunStatus("reached", summary=summary)


def missed(best: float) -> RunStatus:
    return RunStatus("missed", summary=Summary("cosmoflow", "", "smoke", best=best, metric="mae"))


def test_the_matrix_is_the_product_of_its_axes(study: Study) -> None:
    rows = points(replace(study, placements=("replicate", "shard")))
    assert len(rows) == 2 * 2 * 2
    assert [row.batch for row in rows] == sorted(row.batch for row in rows)
    assert [run.name for run in next_runs(study, {})][:4] == [
        "b8-sgd-x1-seed1", "b8-adamw-x1-seed1", "b32-sgd-x1-seed1", "b32-adamw-x1-seed1",
    ]  # fmt: skip


def test_ranks_times_samples_is_the_batch(study: Study) -> None:
    for batch in (1, 2, 4, 8, 512):
        ranks, local = geometry(study, Point(batch, "sgd"))
        assert (ranks * local, local) == (batch, min(4, batch))
    assert geometry(study, Point(8, "sgd", "shard")) == (4, 2), "four nodes need a rank each"


@pytest.mark.parametrize(("batch", "placement"), [(6, "replicate"), (10, "shard"), (2, "shard+reshuffle")])
def test_a_batch_that_ranks_cannot_form_is_refused(study: Study, batch: int, placement: str) -> None:
    with pytest.raises(InputError, match=rf"--batch-sizes: {batch} must be a multiple of \d+ .*; change it"):
        geometry(study, Point(batch, "sgd", placement))


def test_a_run_is_told_what_it_computes(study: Study) -> None:
    shared = replace(study, settings={"train.noise_scale_every": "5"}, own_settings={"sgd": {"optim.momentum": "0.8"}})
    small = study_run(shared, PlannedRun(Point(4, "sgd"), 1.0, 1)).settings
    large = study_run(shared, PlannedRun(Point(512, "sgd", "shard+reshuffle"), 2.0, 3)).settings
    assert "parallel.simulated_ranks" not in small
    assert small["train.noise_scale_every"] == "0", "a single rank has no parts to compare"
    expected = {
        "optim.name": "sgd", "optim.lr": "0.16", "optim.scaling": "linear", "optim.base_batch_size": "512",
        "optim.momentum": "0.8", "train.seed": "3", "train.local_batch_size": "4", "parallel.simulated_ranks": "128",
        "parallel.simulated_nodes": "4", "staging.placement": "shard", "staging.reshuffle": "true",
        "train.noise_scale_every": "5",
    }  # fmt: skip
    assert expected.items() <= large.items()


def test_contiguous_shards_are_a_placement(study: Study) -> None:
    for placement, wanted in (("shard", "false"), ("shard+contiguous", "true")):
        settings = study_run(study, PlannedRun(Point(512, "sgd", placement), 1.0, 1)).settings
        assert (settings["staging.placement"], settings["staging.contiguous"]) == ("shard", wanted)
        assert settings["staging.reshuffle"] == "false"


@pytest.mark.parametrize("name", ["cosmoflow", "deepcam"])
def test_a_batch_of_one_rank_measures_no_noise_whatever_the_preset_asks_for(study: Study, name: str) -> None:
    application = find_application(name)
    assert resolve(application, "study").train.noise_scale_every > 0
    smallest = replace(study, application=name, preset="study", batch_sizes=(4,))
    settings = study_run(smallest, PlannedRun(Point(4, "sgd"), 1.0, 1)).settings
    assert resolve(application, "study", overrides=settings).train.noise_scale_every == 0


@pytest.mark.parametrize(("spatial", "processes"), [("1", 1), ("2", 2), ("2x3", 6)])
def test_a_sample_that_is_split_has_a_process_for_each_part(study: Study, spatial: str, processes: int) -> None:
    split = replace(study, settings={"parallel.spatial": spatial})
    assert processes_per_run(split) == processes
    settings = study_run(split, PlannedRun(Point(32, "sgd"), 1.0, 1)).settings
    assert settings.get("parallel.devices", "1") == str(processes)
    assert settings["parallel.simulated_ranks"] == "8"


def test_searches_come_first_and_seeds_follow_with_the_best_rate(study: Study) -> None:
    searching = replace(study, lr_search=(0.5, 1.0, 2.0))
    first = next_runs(searching, {})
    assert {run.seed for run in first} == {0}
    assert len(first) == 4 * 3, "the same budget for every row"
    point = Point(8, "sgd")
    statuses = {f"b8-sgd-x{m}-search": reached(epochs) for m, epochs in (("0.5", 9), ("1", 7), ("2", 7))}
    statuses["b8-sgd-x2-search"] = reached(7, best=0.29)
    assert choice(searching, point, statuses) == Choice(2.0), "equal epochs: by quality"
    todo = [run.name for run in next_runs(searching, statuses)]
    assert todo[-2:] == ["b8-sgd-x2-seed1", "b8-sgd-x2-seed2"]
    assert dict(left(searching, statuses))[point] == 2
    assert dict(left(searching, {}))[point] == 3 + 2


def test_a_run_that_reached_the_target_is_better_than_one_of_better_quality_that_did_not(study: Study) -> None:
    searching = replace(study, lr_search=(1.0, 2.0))
    statuses = {"b8-sgd-x1-search": missed(0.1), "b8-sgd-x2-search": reached(20, best=0.3)}
    assert choice(searching, Point(8, "sgd"), statuses) == Choice(2.0)
    statuses["b8-sgd-x2-search"] = RunStatus("diverged")
    assert choice(searching, Point(8, "sgd"), statuses) == Choice(1.0)


@pytest.mark.parametrize("other", ["failed", "diverged"])
def test_where_a_run_of_the_search_failed_and_none_is_of_use_no_seed_is_run(study: Study, other: Status) -> None:
    searching = replace(study, lr_search=(1.0, 2.0), borrow=(Borrow("8", 512),))
    statuses = {"b8-sgd-x1-search": RunStatus("failed"), "b8-sgd-x2-search": RunStatus(other)}
    for point in (Point(8, "sgd"), Point(512, "sgd", source="8")):
        assert choice(searching, point, statuses) == Choice(None, blocked=True)
        assert dict(left(searching, statuses))[point] == 0
        assert not [run for run in all_runs(searching, statuses) if run.point == point and run.seed]


def test_where_every_rate_diverges_the_seeds_run_at_the_smallest(study: Study) -> None:
    """Or the batch at which an optimizer breaks down would be missing where the optimizers are compared."""
    searching = replace(study, lr_search=(1.0, 2.0), borrow=(Borrow("8", 512),))
    statuses = {f"b8-sgd-x{m}-search": RunStatus("diverged") for m in (1, 2)}
    assert choice(searching, Point(8, "sgd"), statuses) == Choice(1.0, failed=True)
    seeds = [run.name for run in all_runs(searching, statuses) if run.point == Point(8, "sgd") and not run.is_search]
    assert seeds == ["b8-sgd-x1-seed1", "b8-sgd-x1-seed2"]
    assert dict(left(searching, statuses))[Point(8, "sgd")] == 2
    borrowing = Point(512, "sgd", source="8")
    assert choice(searching, borrowing, statuses) == Choice(None, failed=True), "nobody borrows such a rate"


def test_a_borrowed_rate_is_the_one_chosen_at_the_other_batch(study: Study) -> None:
    borrowing = replace(study, lr_search=(1.0, 2.0), borrow=(Borrow("8", 512),))
    point = Point(512, "sgd", source="8")
    assert point in points(borrowing)
    assert choice(borrowing, point, {}) == Choice(None)
    statuses = {"b8-sgd-x1-search": reached(9), "b8-sgd-x2-search": reached(5)}
    assert choice(borrowing, point, statuses) == Choice(2.0)
    assert rate(borrowing, point, 2.0) == rate(borrowing, Point(8, "sgd"), 2.0) == 0.0025
    assert "b512-sgd-from-8-x2-seed1" in {run.name for run in next_runs(borrowing, statuses)}


def test_a_rate_that_never_reached_the_target_is_not_lent(study: Study) -> None:
    """Its borrowers would miss as well, at a batch where less is reached."""
    borrowing = replace(study, lr_search=(1.0, 2.0), borrow=(Borrow("8", 512),))
    lender, borrower = Point(8, "sgd"), Point(512, "sgd", source="8")
    statuses = {"b8-sgd-x1-search": missed(0.4), "b8-sgd-x2-search": missed(0.3)}
    assert choice(borrowing, lender, statuses) == Choice(2.0), "the seeds show how far it is from the target"
    assert choice(borrowing, borrower, statuses) == Choice(None, failed=True)
    assert dict(left(borrowing, statuses))[borrower] == 0
    one_reached = statuses | {"b8-sgd-x2-search": reached(5)}
    assert choice(borrowing, borrower, one_reached) == Choice(2.0)
    unfinished = {"b8-sgd-x1-search": missed(0.4)}
    assert choice(borrowing, borrower, unfinished) == Choice(None), "it is not known yet"


def test_a_borrowed_preset_brings_optimizer_and_schedule(study: Study) -> None:
    recipe = {"optim.name": "lamb", "optim.lr": "0.004", "schedule.warmup": "3"}
    borrowing = replace(study, borrow=(Borrow("node", 512),), recipes={"node": recipe})
    (point,) = (point for point in points(borrowing) if point.source)
    assert point.optimizer == "lamb"
    settings = study_run(borrowing, PlannedRun(point, 1.0, 1)).settings
    assert recipe.items() <= settings.items()
    assert rate(borrowing, point, 1.0) == 0.004


def test_every_run_that_can_come_has_a_name_of_its_own(study: Study) -> None:
    wide = replace(
        study, lr_search=(0.5, 1.0), placements=("replicate", "shard", "shard+reshuffle"), borrow=(Borrow("8", 32),)
    )
    names = possible_names(wide)
    assert len(names) == len(set(names))
    statuses = {name: reached(5 if "x0.5" in name else 6) for name in names}
    assert {run.name for run in all_runs(wide, statuses)} <= set(names)


def test_quality_counts_in_its_own_direction(study: Study) -> None:
    searching = replace(study, lr_search=(1.0, 2.0))
    summaries = [Summary("d", "", "s", best=best, better="higher", metric="iou") for best in (0.5, 0.6)]
    statuses = {
        f"b8-sgd-x{m}-search": RunStatus("missed", summary=s) for m, s in zip(("1", "2"), summaries, strict=True)
    }
    assert choice(searching, Point(8, "sgd"), statuses) == Choice(2.0)
    assert math.isclose(rate(searching, Point(8, "sgd"), 2.0), 0.0025)
