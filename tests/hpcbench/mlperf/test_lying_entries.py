"""Entries whose logs claim what they do not hold: the official tools accept them, and the rules give no such score."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcbench.mlperf.entries import entries_of
from hpcbench.mlperf.entry import Entry
from hpcbench.mlperf.find_logs import find_runs
from hpcbench.mlperf.package_check import check_organization
from hpcbench.mlperf.published import published_runs
from hpcbench.mlperf.reached_target import why_missed
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.mlperf.run_record import RunRecord
from tests.hpcbench.mlperf.packages import Entries, make_folder, read, run_of, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five runs of DeepCAM that keep all rules."""
    return make_folder(tmp_path / "v1.0" / "ORG", "deepcam", random.Random(4))


def edit(folder: Path, change: Callable[[Entries], Entries]) -> None:
    for path in folder.glob("result_*.txt"):
        write(path, change(read(path)))


def entry_of(folder: Path) -> Entry:
    """The entry, whose folder the official package checker accepts."""
    assert check_organization(folder.parents[3], "1.0.0").passed
    (entry,) = entries_of(read_runs(find_runs([folder])))
    assert entry.official is not None
    assert entry.official.minutes is not None
    return entry


def moved(entries: Entries, key: str, by_ms: int) -> Entries:
    return [entry | {"time_ms": entry["time_ms"] + by_ms} if entry["key"] == key else entry for entry in entries]


def late_quality(entries: Entries) -> Entries:
    """The target is reached only below ``run_stop``."""
    reached = [entry for entry in entries if entry["key"] == "eval_accuracy" and entry["value"] >= 0.82]
    before = [entry | {"value": 0.81} if entry in reached else entry for entry in entries]
    return [*before, *reached]


def test_an_evaluation_after_the_clock_reaches_no_target(folder: Path) -> None:
    edit(folder, late_quality)
    entry = entry_of(folder)
    assert entry.score_min is None
    names = ", ".join(f"result_{number}" for number in range(5))
    why = "no evaluation before run_stop reaches the target of 0.82"
    assert f"status: 5 runs do not count ({names}: {why}); one may" in entry.faults
    assert "official: it counts 5 runs without the target before run_stop" in entry.notes


def test_one_run_that_missed_the_target_is_the_slowest(folder: Path) -> None:
    path = folder / "result_0.txt"
    write(path, late_quality(read(path)))
    entry = entry_of(folder)
    minutes = sorted((run.time_to_train_s or 0) / 60 for run in entry.runs[1:])
    assert entry.score_min == pytest.approx(sum(minutes[1:]) / 3)
    assert not entry.faults


def test_epochs_that_were_not_trained_do_not_pass_the_convergence_test(folder: Path) -> None:
    """23 epochs of training pass at the batch of 2,048, and 13 do not, whatever number the log gives them."""

    def claim(entries: Entries) -> Entries:
        for entry in entries:
            if "epoch_num" in entry["metadata"]:
                entry["metadata"]["epoch_num"] += 10
        return entries

    edit(folder, claim)
    entry = entry_of(folder)
    said = "epochs: more than were begun in 5 of 5 logs; result_0 claims 33 and has 23"
    assert said in entry.faults
    assert entry.convergence is not None
    assert entry.convergence.mean_epochs == 23
    assert entry.score_min is not None

    def shorten(entries: Entries) -> Entries:
        return [entry for entry in entries if entry["metadata"].get("epoch_num", 99) > 20]

    edit(folder, shorten)
    entry = entry_of(folder)
    assert entry.score_min is None
    assert any(fault.startswith("convergence: 13 epochs") for fault in entry.faults)


def test_copies_of_a_log_are_one_run_whatever_their_seeds(folder: Path) -> None:
    for number in range(1, 5):
        copied = read(folder / "result_0.txt")
        write(folder / f"result_{number}.txt", [e | {"value": number} if e["key"] == "seed" else e for e in copied])
    entry = entry_of(folder)
    assert entry.score_min is None
    assert "copies: 4 logs with the start, the times and the evaluations of another: one run" in entry.faults
    assert "official: it counts copies of a log" in entry.notes


@pytest.mark.parametrize(
    ("key", "by_ms", "said"),
    [
        ("run_stop", -60_000, "run_stop is 6"),
        ("run_start", 40_000, "run_start is "),
    ],
)
def test_a_clock_that_the_lines_within_contradict_gives_no_score(folder: Path, key: str, by_ms: int, said: str) -> None:
    edit(folder, lambda entries: moved(entries, key, by_ms))
    entry = entry_of(folder)
    assert entry.score_min is None
    (fault,) = entry.faults
    assert fault.startswith(f"clock: the run lasted longer than it says in 5 of 5 logs; result_0: {said}")


def test_times_of_several_processes_may_differ_by_less_than_a_second(folder: Path) -> None:
    edit(folder, lambda entries: moved(entries, "run_stop", -900))
    entry = entry_of(folder)
    assert entry.score_min is not None
    assert not entry.faults


def test_of_two_starts_the_first_counts(folder: Path) -> None:
    minutes = entry_of(folder).score_min

    def start_again(entries: Entries) -> Entries:
        start = next(entry for entry in entries if entry["key"] == "run_start")
        stop = next(number for number, entry in enumerate(entries) if entry["key"] == "run_stop")
        again = start | {"time_ms": entries[stop]["time_ms"] - 5000}
        return [*entries[:stop], again, *entries[stop:]]

    edit(folder, start_again)
    entry = entry_of(folder)
    assert entry.score_min == minutes
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx(5 / 60)
    assert "2 lines run_start, of which the first counts" in entry.runs[0].notes
    assert "official: of several lines run_start or run_stop it takes others than the first" in entry.notes


def test_runs_of_several_recipes_are_told(folder: Path) -> None:
    path = folder / "result_3.txt"
    write(path, [entry | {"value": 0.007} if entry["key"] == "opt_lr" else entry for entry in read(path)])
    assert "recipe: the runs differ in opt_lr" in entry_of(folder).notes


def test_a_throughput_needs_a_time_to_train_with_a_score(tmp_path: Path) -> None:
    organization = tmp_path / "v1.0" / "ORG"
    make_folder(organization, "deepcam", random.Random(4), weak=True)
    beside = organization / "results" / "box" / "strong" / "deepcam"
    beside.mkdir(parents=True)
    rule = "alone: no time to train of deepcam by the organization has a score"
    for number in range(3):
        write(beside / f"result_{number}.txt", run_of("deepcam", number, random.Random(number)))
    assert rule not in throughput_of(organization).faults, "its score is withheld for lack of runs"
    for number in range(2):
        (beside / f"result_{number}.txt").unlink()
    assert rule in throughput_of(organization).faults
    shutil.rmtree(beside)
    assert rule not in throughput_of(organization).faults, "which has a fault of its own"


def throughput_of(organization: Path) -> Entry:
    (entry,) = [e for e in entries_of(read_runs(find_runs([organization]))) if e.first.mode == "throughput"]
    return entry


@pytest.mark.parametrize(
    ("qualities", "target", "lower", "missed"),
    [
        ([0.5, 0.124], 0.124, True, False),
        ([0.5, 0.1241], 0.124, True, True),
        ([-0.3, -0.12], 0.124, True, False),
        ([0.8, 0.82, 0.81], 0.82, False, False),
        ([0.8199], 0.82, False, True),
        ([0.1], None, False, False),
        ([], 0.82, False, False),
    ],
)
def test_any_evaluation_may_reach_the_target(
    qualities: list[float], target: float | None, lower: bool, missed: bool
) -> None:
    assert (why_missed(qualities, target, lower) is not None) is missed


def test_outside_a_round_the_target_is_the_one_that_the_log_names(tmp_path: Path, folder: Path) -> None:
    """A small run has a target of its own; in the tree of a round such a line changes nothing."""
    names = ("quality_target", "target_accuracy_reached")
    entries = [entry for entry in late_quality(read(folder / "result_0.txt")) if entry["key"] not in names]
    named = {"key": "quality_target", "value": 0.5, "metadata": {}, "time_ms": entries[0]["time_ms"]}
    write(tmp_path / "other.txt", entries)
    write(tmp_path / "own.txt", [named, *entries])
    write(folder / "result_0.txt", [named, *entries])
    paths = [tmp_path / "own.txt", tmp_path / "other.txt", folder / "result_0.txt"]
    own, other, published = (read_runs(find_runs([path]))[0] for path in paths)
    assert (own.converged, other.converged, published.converged) == (True, False, False)
    assert other.reason == "no evaluation before run_stop reaches the target of 0.82"


def test_published_runs_that_say_success_and_missed_the_target() -> None:
    """Two of v0.7, in which no tool looked for that."""
    missed: list[RunRecord] = [run for run in published_runs() if run.status == "success" and not run.converged]
    assert [(run.organization, run.system, Path(run.path).name) for run in missed] == [
        ("Fujitsu", "abci_512xV100_tensorflow_closed", "result_9.txt"),
        ("RIKEN", "fugaku_512xA64FX_tensorflow_closed", "result_4.txt"),
    ]
