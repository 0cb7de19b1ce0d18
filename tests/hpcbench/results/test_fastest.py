"""The headline of a comparison: which run is the fastest, by how much, and on what machine."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from hpcbench.results.fastest import finding, machine
from hpcbench.results.records import Run, read_run

SLOW = {"samples_per_s": 50.0, "time_to_solution_s": 80.0}
FAST = {"samples_per_s": 100.0, "time_to_solution_s": 32.0}


@pytest.fixture
def runs(build_run: Any) -> Any:
    made = itertools.count()

    def make(**options: dict[str, Any]) -> dict[str, Run]:
        return {name: read_run(build_run(f"{name}-{next(made)}", **summary)) for name, summary in options.items()}

    return make


def test_times_of_runs_that_reached_one_target(runs: Any) -> None:
    assert finding(runs(one=SLOW, two=FAST)) == "cosmoflow: two reaches the target 2.50 times as fast as one"


def test_runs_whose_names_tell_the_application_do_not_repeat_it(runs: Any) -> None:
    found = finding(runs(**{"cosmoflow-1": SLOW, "cosmoflow-2": FAST}))
    assert found == "cosmoflow-2 reaches the target 2.50 times as fast as cosmoflow-1"


def test_the_slowest_of_many(runs: Any) -> None:
    found = finding(runs(one=SLOW, two=FAST, three=FAST | {"time_to_solution_s": 40.0}))
    assert found == "cosmoflow: two reaches the target 2.50 times as fast as one, the slowest of 3 runs"


def test_machines_are_named_where_they_differ(runs: Any) -> None:
    gpus = {"device": "NVIDIA H100", "device_type": "cuda", "world_size": 8, "nodes": 2}
    cores = {"device": "AMD EPYC", "device_type": "cpu", "world_size": 2}
    found = runs(gpu=FAST | gpus, cpu=SLOW | cores)
    assert machine(found["gpu"]) == "2 nodes, 8 x NVIDIA H100"
    assert finding(found) == (
        "cosmoflow: gpu (2 nodes, 8 x NVIDIA H100) reaches the target 2.50 times as fast as cpu (AMD EPYC)"
    )


@pytest.mark.parametrize(
    "first",
    [SLOW | {"status": "target_not_reached"}, SLOW | {"target": 0.2}, SLOW | {"status": "aborted"}],
    ids=["missed", "another target", "aborted"],
)
def test_rates_where_times_to_solution_cannot_be_compared(first: dict[str, Any], runs: Any) -> None:
    assert finding(runs(one=first, two=FAST)) == "cosmoflow: two trains 2.00 times as fast as one"


def test_equal_runs_are_called_equal(runs: Any) -> None:
    nearly = FAST | {"time_to_solution_s": 32.5}
    assert finding(runs(one=FAST, two=nearly)) == "cosmoflow: both runs reach the target equally fast, to within 2.0 %"
    assert finding(runs(one=FAST, two=nearly, three=FAST)).startswith("cosmoflow: all runs reach")


def test_nothing_is_found_where_there_is_nothing_to_compare(runs: Any) -> None:
    assert finding(runs(one=FAST)) == ""
    assert finding(runs(one=FAST | {"status": "aborted", "samples_per_s": None}, two=SLOW)) == ""
