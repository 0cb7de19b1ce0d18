"""Rules that no official tool checks: each one broken, in a made-up submission that the official tools accept."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpcbench.mlperf.entries import entries_of
from hpcbench.mlperf.entry import Entry
from hpcbench.mlperf.entry_rules import other_samples
from hpcbench.mlperf.find_logs import find_runs
from hpcbench.mlperf.package_check import check_organization
from hpcbench.mlperf.read_runs import read_runs
from tests.hpcbench.mlperf.packages import Entries, edit_system, make_folder, read, run_of, write


def make(tmp_path: Path, weak: bool, accelerators: int = 80) -> Path:
    """A throughput of 5 to 7 instances of 16 accelerators and its time to train, or only the latter."""
    organization = tmp_path / "v1.0" / "ORG"
    folder = make_folder(organization, "deepcam", random.Random(4), weak=weak)
    if weak:
        beside = organization / "results" / "box" / "strong" / "deepcam"
        beside.mkdir(parents=True)
        for number in range(5):
            write(beside / f"result_{number}.txt", run_of("deepcam", number, random.Random(number)))
        for path in sorted(folder.glob("result_*.txt"))[5:]:
            path.unlink()
        edit_system(folder, lambda system: system.update(number_of_nodes=str(accelerators // 8)))
    return folder


def entry_of(folder: Path) -> Entry:
    (entry,) = entries_of(read_runs(find_runs([folder])))
    return entry


def edit(folder: Path, number: int, change: Callable[[Entries], object]) -> None:
    path = folder / f"result_{number}.txt"
    entries = read(path)
    change(entries)
    write(path, entries)


def later(entries: Entries, by_ms: int, keys: tuple[str, ...] = ()) -> None:
    for entry in entries:
        if not keys or entry["key"] in keys:
            entry["time_ms"] += by_ms


def texts_of_rule(entry: Entry, rule: str) -> list[str]:
    return [text for text in (*entry.faults, *entry.notes) if text.startswith(f"{rule}: ")]


RULES = (
    "alone",
    "scale",
    "samples",
    "sizes",
    "clocks",
    "init",
    "system",
    "clock",
    "status",
    "seeds",
    "window",
    "mixed",
)


@pytest.mark.parametrize("weak", [False, True])
def test_an_entry_that_keeps_all_rules_has_no_finding(tmp_path: Path, weak: bool) -> None:
    entry = entry_of(make(tmp_path, weak))
    assert entry.faults == []
    assert [rule for rule in RULES if texts_of_rule(entry, rule)] == []


@pytest.mark.parametrize(("accelerators", "said"), [
    (8, "scale: an instance has 16 accelerators, the system 8"),
    (88, "scale: the system has 88 accelerators, its 5 instances at most 80"),
    (16, None), (80, None), (72, None),
])  # fmt: skip
def test_the_system_holds_an_instance_and_no_more_than_all(tmp_path: Path, accelerators: int, said: str | None) -> None:
    entry = entry_of(make(tmp_path, True, accelerators))
    assert texts_of_rule(entry, "scale") == ([] if said is None else [said])


def test_pruned_instances_are_instances_too(tmp_path: Path) -> None:
    folder = make(tmp_path, True, 96)
    assert texts_of_rule(entry_of(folder), "scale")
    (folder / "pruned_results").mkdir()
    write(folder / "pruned_results" / "result_9.txt", run_of("deepcam", 9, random.Random(9), nodes=2))
    assert not texts_of_rule(entry_of(folder), "scale")


def test_throughput_does_not_stand_alone(tmp_path: Path) -> None:
    folder = make(tmp_path, True)
    for path in (folder.parents[1] / "strong" / "deepcam").iterdir():
        path.unlink()
    assert texts_of_rule(entry_of(folder), "alone") == [
        "alone: throughput without a time to train of deepcam by the organization"
    ]


def test_instances_of_one_job_overlap_by_their_clocks(tmp_path: Path) -> None:
    folder = make(tmp_path, True, 80)
    edit(folder, 0, lambda entries: later(entries, 3_600_000))
    assert "yet one starts" in texts_of_rule(entry_of(folder), "clocks")[0]
    edit_system(folder, lambda system: system.update(number_of_nodes="4"))
    assert texts_of_rule(entry_of(folder), "clocks") == []  # one after another, on fewer nodes than all need
    edit(folder, 1, lambda entries: later(entries, 30 * 3_600_000))
    assert texts_of_rule(entry_of(folder), "clocks") == ["clocks: instances start more than a day apart"]


def test_initialisation_lasts_less_than_half_an_hour(tmp_path: Path) -> None:
    """In the open division too, as the compliance checker asks."""
    folder = make(tmp_path, False)
    edit(folder, 2, lambda entries: later(entries, -1_900_000, ("init_start",)))
    entry = entry_of(folder)
    assert "init: 1 run of 30 minutes or more" in texts_of_rule(entry, "init")[0]
    assert entry.logs["result_2.txt"].accepted is False


def test_the_description_is_that_of_the_folder(tmp_path: Path) -> None:
    folder = make(tmp_path, False)
    edit_system(folder, lambda system: system.update(division="open", number_of_nodes="512"))
    entry = entry_of(folder)
    assert texts_of_rule(entry, "system") == [
        "system: the description says open, the logs say closed",
        "system: nodes in the logs: 256, in the description: 512",
    ]
    (folder.parents[3] / "systems" / "box.json").rename(folder.parents[3] / "systems" / "Box.json")
    entry = entry_of(folder)
    assert entry.faults == ["system: no systems/box.json describes the folder's system"]
    assert entry.official is not None
    assert entry.official.minutes is None
    assert "official: no score: the summarizer passes the system over: no systems/box.json" in entry.notes


def test_closed_runs_have_the_published_set(tmp_path: Path) -> None:
    """Up to the last batch, which some loaders leave out; v0.7 had another set of CosmoFlow."""

    def change(entries: Entries) -> None:
        next(entry for entry in entries if entry["key"] == "train_samples")["value"] = samples

    for samples, said in ((524_288 - 512, False), (4096, True)):
        folder = make_folder(tmp_path / str(samples) / "v1.0" / "ORG", "cosmoflow", random.Random(1))
        for number in range(10):
            edit(folder, number, change)
        entry = entry_of(folder)
        told = "samples: 4,096 training samples, the published set has 524,288, in 10 of 10 logs"
        assert texts_of_rule(entry, "samples") == [told] * said
        assert (entry.score_min is None) is said
        assert (entry.official is not None and entry.official.minutes) is not None
        assert ("official: it does not see that the set is another" in entry.notes) is said
    run = entry.runs[0]
    assert other_samples(replace(run, division="open")) is None
    assert other_samples(replace(run, round="v0.7")) is None
    assert other_samples(replace(run, train_samples=None)) is None


def test_a_log_is_monotone(tmp_path: Path) -> None:
    folder = make(tmp_path, False)
    edit(folder, 1, lambda entries: later(entries, 5_000, ("epoch_start",)))
    entry = entry_of(folder)
    assert texts_of_rule(entry, "clock") == ["clock: goes back in 1 of 5 logs"]
    assert entry.faults == []


def test_of_seven_runs_a_window_counts_and_the_official_tool_takes_all(tmp_path: Path) -> None:
    folder = make(tmp_path, False)
    for number in (5, 6):
        write(folder / f"result_{number}.txt", run_of("deepcam", number, random.Random(number)))
    entry = entry_of(folder)
    assert entry.faults == ["count: 7 runs where the rules ask for 5"]
    assert texts_of_rule(entry, "window")[0].endswith("have the median of the scores of 5 runs in a row")
    minutes = [run.time_to_train_s / 60 for run in entry.runs if run.time_to_train_s is not None]
    windows = sorted(sum(sorted(minutes[at : at + 5])[1:-1]) / 3 for at in range(3))
    assert entry.score_min == pytest.approx(windows[1])
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx(sum(sorted(minutes)[1:-1]) / 5)
    assert "official: it counts all 7 logs" in entry.notes


def test_made_up_submissions_pass_the_package_checker(tmp_path: Path) -> None:
    for weak in (False, True):
        folder = make(tmp_path / str(weak), weak)
        assert check_organization(folder.parents[3], "1.0.0").passed
    assert json.loads((folder.parents[3] / "systems" / "box.json").read_text())["division"] == "closed"


@pytest.mark.parametrize(("start", "path"), [("weak", "deepcam"), ("weak/deepcam", "."), (".", "../box/weak")])
def test_a_path_that_begins_within_a_tree_gives_the_same_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str, path: str
) -> None:
    whole = entry_of(make(tmp_path, weak=True))
    monkeypatch.chdir(tmp_path / "v1.0" / "ORG" / "results" / "box" / start)
    (entry,) = [each for each in entries_of(read_runs(find_runs([Path(path)]))) if each.first.mode == "throughput"]
    assert (entry.score_min, entry.faults, entry.official) == (whole.score_min, whole.faults, whole.official)
    assert entry.score_min is not None
