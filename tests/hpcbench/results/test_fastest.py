"""The headline of a comparison: which run is the fastest, by how much, and on what machine."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from hpcbench.results.comparable import caveat, repeats
from hpcbench.results.compare import group
from hpcbench.results.fastest import finding, machine
from hpcbench.results.records import Run, read_run

SLOW = {"samples_per_s": 50.0, "time_to_solution_s": 80.0}
FAST = {"samples_per_s": 100.0, "time_to_solution_s": 32.0, "peak_lr": 0.008}
"""With another setting, so that the two are not repeats."""


@pytest.fixture
def runs(build_run: Any) -> Any:
    made = itertools.count()

    def make(**options: dict[str, Any]) -> dict[str, Run]:
        return {name: read_run(build_run(f"{name}-{next(made)}", **summary)) for name, summary in options.items()}

    return make


def test_times_of_runs_that_reached_one_target(runs: Any) -> None:
    assert (
        finding(runs(one=SLOW, two=FAST))
        == "cosmoflow: two reaches the target 2.50 times as fast as one, in these runs"
    )


def test_runs_whose_names_tell_the_application_do_not_repeat_it(runs: Any) -> None:
    found = finding(runs(**{"cosmoflow-1": SLOW, "cosmoflow-2": FAST}))
    assert found == "cosmoflow-2 reaches the target 2.50 times as fast as cosmoflow-1, in these runs"


def test_the_slowest_of_many(runs: Any) -> None:
    found = finding(runs(one=SLOW, two=FAST, three=FAST | {"time_to_solution_s": 40.0}))
    assert found == "cosmoflow: two reaches the target 2.50 times as fast as one, the slowest of these 3 runs"


def test_machines_are_named_where_they_differ(runs: Any) -> None:
    gpus = {"device": "NVIDIA H100", "device_type": "cuda", "world_size": 8, "nodes": 2}
    cores = {"device": "AMD EPYC", "device_type": "cpu", "world_size": 2}
    found = runs(gpu=FAST | gpus, cpu=SLOW | cores)
    assert machine(found["gpu"]) == "2 nodes, 8 x NVIDIA H100"
    assert finding(found) == (
        "cosmoflow: gpu (2 nodes, 8 x NVIDIA H100) reaches the target 2.50 times as fast as cpu (AMD EPYC), "
        "in these runs"
    )


@pytest.mark.parametrize(
    ("first", "reach"),
    [
        (SLOW | {"status": "target_not_reached"}, "; 1 of 2 runs reaches the target"),
        (SLOW | {"target": 0.2}, ""),
        (SLOW | {"status": "aborted"}, "; 1 of 2 runs reaches the target"),
        (SLOW | {"status": "aborted", "target": 0.2}, "; 1 of 2 runs reaches its target"),
    ],
    ids=["missed", "another target", "aborted", "aborted before another target"],
)
def test_rates_where_times_to_solution_cannot_be_compared(first: dict[str, Any], reach: str, runs: Any) -> None:
    assert finding(runs(one=first, two=FAST)) == f"cosmoflow: two trains 2.00 times as fast as one{reach}"


def test_equal_runs_are_called_equal(runs: Any) -> None:
    nearly, equally = SLOW | {"time_to_solution_s": 32.5}, "equally fast, to within 2.0 %, in these runs"
    assert finding(runs(one=FAST, two=nearly)) == f"cosmoflow: both runs reach the target {equally}"
    assert finding(runs(one=FAST, two=nearly, three=FAST)) == f"cosmoflow: all runs reach the target {equally}"


def test_runs_that_missed_are_counted(runs: Any) -> None:
    """And "both" and "all" are said of no part of the runs."""
    nearly, lost = SLOW | {"time_to_solution_s": 32.5}, SLOW | {"status": "target_not_reached"}
    said = "cosmoflow: 2 runs reach the target equally fast, to within 2.0 %, in these runs; 2 of 3 runs reach it"
    assert finding(runs(one=FAST, two=nearly, three=lost)) == said
    found = finding(runs(one=SLOW, two=FAST, three=lost | {"status": "aborted"}))
    assert found == "cosmoflow: two reaches the target 2.50 times as fast as one, in these runs; 2 of 3 runs reach it"
    found = finding(runs(one=FAST, two=nearly, three=SLOW | {"target": None}))
    assert found == said, "a run without a target reaches none"
    unknown = {"status": "aborted", "samples_per_s": None}
    found = finding(runs(one=SLOW | {"target": None}, two=SLOW | {"target": None}, three=unknown | {"target": None}))
    assert found == "cosmoflow: 2 runs train equally fast, to within 2.0 %; 2 of 3 runs have a rate"


@pytest.mark.parametrize(
    ("other", "differing"),
    [
        ({"train_samples": 64}, "training samples (64 and 816)"),
        ({"flops_forward_per_sample": 7}, "FLOPs of a sample (7 and 132,464,640)"),
        ({"train_samples": 64, "target": 0.46}, "training samples (64 and 816) and targets (0.3, 0.46)"),
        (
            {"train_samples": 64, "parameters": 5, "flops_forward_per_sample": 7},
            "training samples (64 and 816), parameters (5 and 100,000) and FLOPs of a sample (7 and 132,464,640)",
        ),
    ],
    ids=["samples", "size of samples", "rates", "all"],
)
def test_runs_of_different_problems_have_no_factor(other: dict[str, Any], differing: str, runs: Any) -> None:
    one = SLOW | {"parameters": 100_000, "flops_forward_per_sample": 132_464_640}
    compared = runs(one=one, two=one | FAST | other)
    assert finding(compared) == f"cosmoflow: the runs are not compared, as they differ in {differing}"
    assert caveat(compared) == ""
    ratios = group(compared, Path())["ratios"][1]
    assert [ratios[key] for key in ("epochs", "rate", "rank_rate", "time")] == ["-"] * 4


def test_operations_that_were_not_counted_do_not_differ(runs: Any) -> None:
    assert "2.50 times" in finding(runs(one=SLOW | {"flops_forward_per_sample": 0}, two=FAST))


def test_nothing_is_found_where_there_is_nothing_to_compare(runs: Any) -> None:
    assert finding(runs(one=FAST)) == ""
    assert finding(runs(one=FAST | {"status": "aborted", "samples_per_s": None}, two=SLOW)) == ""


def test_repeats_have_a_range_and_no_winner(runs: Any) -> None:
    """The recorded seeds of one recipe, of which most pairs differ by more than runs that are called equal."""
    seconds = (2.7, 3.8, 2.0, 2.0, 2.4)
    same = {f"s{seed}": {"seed": seed, "time_to_solution_s": time} for seed, time in enumerate(seconds)}
    repeated = runs(**same)
    assert finding(repeated) == "cosmoflow: same settings, other seeds: 2.00 s to 3.80 s to the target"
    for first, second in itertools.combinations(repeated, 2):
        pair = finding({first: repeated[first], second: repeated[second]})
        assert "same settings, other seeds" in pair
        assert "times as fast" not in pair
    assert caveat(repeated) == ""
    named = {f"cosmoflow-{name}": run for name, run in repeated.items()}
    assert finding(named) == "Same settings, other seeds: 2.00 s to 3.80 s to the target"
    lost = runs(**same, s5={"seed": 5, "status": "target_not_reached"})
    assert finding(lost).endswith("2.00 s to 3.80 s to the target; 5 of 6 runs reach it")
    again = runs(one=SLOW, two=SLOW)
    assert finding(again) == "cosmoflow: same settings and seed: 80.0 s to the target"


def test_the_seed_alone_does_not_make_other_settings(runs: Any) -> None:
    """In the configuration, which also has settings that the summary lacks."""
    pair = runs(one=SLOW, two=SLOW | {"seed": 1})
    for run, seed in zip(pair.values(), (2019, 1), strict=True):
        run.folder.write_config({"optim": {"name": "sgd"}, "train": {"seed": seed}})
    assert repeats(list(pair.values())) == "same settings, other seeds"
    pair["two"].folder.write_config({"optim": {"name": "lamb"}, "train": {"seed": 1}})
    assert repeats(list(pair.values())) == ""
    assert caveat(pair) == "One run each does not tell settings from seeds."
    pair["two"].folder.config.unlink()
    assert repeats(list(pair.values())) == "", "where settings are not known"


def test_single_runs_do_not_tell_settings_from_seeds(runs: Any) -> None:
    assert caveat(runs(one=SLOW, two=FAST)) == "One run each does not tell settings from seeds."
    several = runs(one=SLOW, two=FAST, three=FAST | {"seed": 1})
    assert caveat(several) == "A single run does not tell settings from seeds."
    assert caveat(runs(one=SLOW)) == ""
    assert caveat(runs(one=SLOW | {"target": None}, two=FAST | {"target": None})) == "", "only rates are compared"
