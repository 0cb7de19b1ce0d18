"""Scores by the rules: analytic ones, and each rule that an entry can break."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.mlperf.entries import entries_of, score
from hpcbench.mlperf.entries_table import row_of
from hpcbench.mlperf.entry import Entry, distinct_seeds
from hpcbench.mlperf.published import published_runs
from hpcbench.mlperf.run_record import RunRecord

RUN = RunRecord(
    origin="published", round="v1.0", organization="ORG", system="box", application="deepcam", division="closed",
    mode="time to train", global_batch_size=2048, accelerators=2048, status="success", epochs=23.0, start_unix_s=0.0,
)  # fmt: skip
MINUTES = (1.0, 2.0, 3.0, 4.0, 50.0)


@pytest.fixture(autouse=True)
def organization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree around the runs: a description of their system, and a time to train beside their throughput."""
    monkeypatch.chdir(tmp_path)
    described = {"division": "closed", "number_of_nodes": "256", "accelerators_per_node": "8"}
    Path("ORG/systems").mkdir(parents=True)
    Path("ORG/systems/box.json").write_text(json.dumps(described))
    Path("ORG/results/other/strong/deepcam").mkdir(parents=True)
    Path("ORG/results/other/strong/deepcam/result_0.txt").write_text("")


def runs(minutes: tuple[float, ...] = MINUTES, **more: object) -> list[RunRecord]:
    return [
        replace(RUN, path=f"ORG/results/box/strong/deepcam/result_{number}.txt", seed=number, time_to_train_s=60 * each,
                notes=[], **more)  # type: ignore[arg-type]
        for number, each in enumerate(minutes)
    ]  # fmt: skip


def entry_of(made: list[RunRecord]) -> Entry:
    (entry,) = entries_of(made)
    return entry


def test_the_fastest_and_the_slowest_do_not_count() -> None:
    entry = entry_of(runs())
    assert entry.score_min == pytest.approx(3.0)
    assert not entry.faults
    assert entry.convergence is not None
    assert entry.convergence.passed
    assert entry.convergence.factor == 1


def test_one_run_that_failed_is_the_slowest() -> None:
    made = runs()
    made[0].status = "aborted"
    entry = entry_of(made)
    assert entry.score_min == pytest.approx((3 + 4 + 50) / 3)
    assert entry.notes == ["status: result_0 did not converge and counts as the slowest"]
    made[1].status = None
    entry = entry_of(made)
    assert entry.score_min is None
    assert "status: 2 runs did not converge; one may" in entry.faults


def test_epochs_below_the_reference_slow_the_score_down() -> None:
    """22.625 epochs is the mean of the reference, 21.11 the least that is accepted."""
    entry = entry_of(runs(epochs=22.0))
    assert entry.score_min == pytest.approx(3.0 * 22.625 / 22)
    too_fast = entry_of(runs(epochs=20.0))
    assert too_fast.score_min is None, "the rules accept no entry below the least mean"
    assert too_fast.faults[0].startswith("convergence: 20 epochs, the reference 22.62")
    assert entry_of(runs(epochs=20.0, division="open")).convergence is None
    assert entry_of(runs(epochs=20.0, round="v0.7")).convergence is None


def test_throughput_lasts_from_the_first_start_to_the_last_stop() -> None:
    made = runs(mode="throughput")
    made[2].start_unix_s = 3600.0
    entry = entry_of(made)
    assert entry.score_min == pytest.approx(63.0)
    assert entry.models_per_min == pytest.approx(5 / 63)
    made[1].seed = 0
    repeated = entry_of(made)
    assert "seeds: 1 instance with the seed of another, to be pruned" in repeated.faults
    assert "count: 4 instances, fewer than 5" in repeated.faults
    assert (repeated.score_min, repeated.models_per_min) == (None, None)
    made[1].accelerators = 16
    assert "sizes: instances of 16 and 2,048 accelerators" in entry_of(made).faults
    made[3].status = "aborted"
    lost = entry_of(made)
    assert lost.models_per_min is None
    assert "status: 1 instance without convergence, to be pruned" in lost.faults


def test_a_throughput_is_tested_against_the_reference_but_not_normalised() -> None:
    entry = entry_of(runs(mode="throughput", epochs=22.0))
    assert entry.score_min == pytest.approx(50.0)
    row = row_of(entry)
    assert (row["mean_epochs"], row["reference_epochs"], row["factor"]) == (22, 22.625, 1)
    assert row_of(entry_of(runs(epochs=22.0)))["factor"] == pytest.approx(22.625 / 22)
    too_fast = entry_of(runs(mode="throughput", epochs=20.0))
    assert too_fast.faults[0].startswith("convergence: 20 epochs, the reference 22.62")


def test_instances_with_the_seed_of_another_are_pruned() -> None:
    """The last of six instances stops latest, and has the seed of the first; it counts where the first failed."""
    made = runs((1.0, 2.0, 3.0, 4.0, 5.0, 60.0), mode="throughput")
    made[5].seed = 0
    entry = entry_of(made)
    assert entry.score_min == pytest.approx(5.0)
    assert entry.models_per_min == pytest.approx(5 / 5)
    assert entry.faults == ["seeds: 1 instance with the seed of another, to be pruned"]
    made[0].status = "aborted"
    assert entry_of(made).score_min is None, "until the failed one is pruned"
    assert [run.time_to_train_s for run in distinct_seeds(Entry(made))] == [120, 180, 240, 300, 3600]


def test_pruned_runs_do_not_count() -> None:
    made = runs(mode="throughput")
    extra = replace(
        made[0], path="ORG/results/box/strong/deepcam/pruned_results/result_9.txt", pruned=True, status="aborted"
    )
    entry = entry_of([*made, extra])
    assert (len(entry.runs), entry.pruned) == (5, 1)
    assert not entry.faults


def break_batch(made: list[RunRecord]) -> None:
    made[0].global_batch_size = 64


def break_seed(made: list[RunRecord]) -> None:
    made[0].seed = made[1].seed


@pytest.mark.parametrize(("change", "fault"), [
    (lambda made: made.pop(), "count: 4 runs where the rules ask for 5"),
    (lambda made: made.append(replace(made[0], seed=99)), "count: 6 runs where the rules ask for 5"),
    (break_batch, "mixed: the runs differ in application, batch or division"),
    (break_seed, "seeds: 1 run with the seed of another"),
])  # fmt: skip
def test_a_broken_rule_is_named(change: Callable[[list[RunRecord]], object], fault: str) -> None:
    made = runs()
    change(made)
    entry = entry_of(made)
    assert fault in entry.faults
    assert (entry.score_min is not None) == (len(made) > 5), "of more runs a window has a score"


@pytest.mark.parametrize("where", [{"division": "open"}, {"round": "v0.7"}])
def test_runs_may_share_a_seed_where_no_rule_forbids_it(where: dict[str, str]) -> None:
    made = runs(**where)
    break_seed(made)
    assert entry_of(made).score_min == pytest.approx(3.0)


def test_published_entries_without_a_score_by_the_rules() -> None:
    """Three converged faster than the reference allows, which was waived for them, and one did not converge."""
    groups: dict[tuple[object, ...], list[RunRecord]] = {}
    for run in published_runs():
        if not run.pruned:
            groups.setdefault((run.round, run.organization, run.system, run.application, run.mode), []).append(run)
    made = {key: Entry(list(group)) for key, group in groups.items()}
    for entry in made.values():
        score(entry)
    unscored = {key[:2]: entry.faults[0].partition(":")[0] for key, entry in made.items() if entry.score_min is None}
    assert unscored == {("v0.7", "Fujitsu"): "status", ("v1.0", "LBNL"): "convergence", ("v1.0", "NVIDIA"):
                        "convergence", ("v2.0", "HelmholtzAI"): "convergence"}  # fmt: skip


def test_runs_of_one_trajectory_are_counted() -> None:
    """The largest group of those that trained alike."""
    made = runs()
    for number, each in enumerate(made):
        each.qualities = [0.3, 0.2, 0.1 if number < 3 else 0.11]
    assert entry_of(made).notes == ["trajectory: 3 of 5 runs have the same"]


def test_no_epochs_are_too_fast() -> None:
    assert entry_of(runs(epochs=0.0)).faults[0].startswith("convergence: 0 epochs")


def test_own_runs_and_single_logs_are_no_entries() -> None:
    assert not entries_of([replace(RUN, origin="own"), replace(RUN, origin="log")])
