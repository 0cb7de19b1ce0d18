"""The official score of altered folders, beside the official summarizer, and what is said where the rules differ."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance

from hpcbench.mlperf import official_folders
from hpcbench.mlperf.check_folder import check_runs
from hpcbench.mlperf.entries import entries_of
from hpcbench.mlperf.entry import Entry
from hpcbench.mlperf.find_logs import find_runs
from hpcbench.mlperf.log_cache import LogCache
from hpcbench.mlperf.official_checker import messages_of
from hpcbench.mlperf.official_folders import official_logs
from hpcbench.mlperf.official_log import official_log, read_official_log
from hpcbench.mlperf.official_score import SCALING, log_files
from hpcbench.mlperf.read_runs import read_runs
from hpcbench.mlperf.rulesets import RULESETS, round_around, ruleset_of_round
from tests.hpcbench.measure.driven_logs import COSMOFLOW, DEEPCAM, OLD
from tests.hpcbench.mlperf.official_tools import package_verdict, quiet, summarized
from tests.hpcbench.mlperf.packages import edit_some, make_folder, read, shift_epochs, write


def make(tmp_path: Path, weak: bool = False, closed: bool = True) -> Path:
    return make_folder(tmp_path / "v1.0" / "ORG", "deepcam", random.Random(7), weak=weak, closed=closed)


def entry_of(folder: Path) -> Entry:
    (entry,) = entries_of(read_runs(find_runs([folder])))
    return entry


def theirs(folder: Path) -> float | str | None:
    """The score of the official summarizer in minutes, or its crash. It may write into the folder."""
    found = summarized(folder.parents[3], "1.0.0")
    return found if isinstance(found, str) else found.get((folder.parent.name, folder.name))


def change(folder: Path, number: int, key: str, **fields: object) -> None:
    path = folder / f"result_{number}.txt"
    write(path, [entry | fields if entry["key"] == key else entry for entry in read(path)])


def said(entry: Entry) -> str:
    return next((note for note in entry.notes if note.startswith("official: ")), "")


@pytest.mark.parametrize("ruleset", RULESETS)
@pytest.mark.parametrize("path", [COSMOFLOW, DEEPCAM, OLD], ids=lambda path: path.stem)
def test_published_logs_have_the_verdict_of_the_official_command(path: Path, ruleset: str) -> None:
    """Whole logs, with the lines of steps that are passed over here."""
    with quiet():
        checker = mlp_compliance.make_checker("hpc", ruleset, True, False)
        assert read_official_log(path, ruleset).accepted == checker.check_file(str(path), f"hpc_{ruleset}/common.yaml")


def test_a_published_score(tmp_path: Path) -> None:
    """Equal logs, so that the score is the time of one: 100.672 s for NVIDIA's DeepCAM."""
    folder = make(tmp_path)
    for number in range(5):
        write(
            folder / f"result_{number}.txt",
            [each | {"time_ms": each["time_ms"] + 1000 * number} for each in read(DEEPCAM)],
        )
        change(folder, number, "seed", value=number)
    entry = entry_of(folder)
    events = {each["key"]: each["time_ms"] for each in read(DEEPCAM) if each["key"] in ("run_start", "run_stop")}
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx((events["run_stop"] - events["run_start"]) / 60_000, abs=1e-9)
    assert entry.official.minutes == pytest.approx(entry.score_min) == pytest.approx(theirs(folder), abs=1e-6)
    assert said(entry) == ""


def test_a_forged_scaling_is_told(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / SCALING).write_text('{"scaling_factor": 2}')
    entry = entry_of(folder)
    assert entry.official is not None
    assert entry.score_min is not None
    assert entry.official.minutes == pytest.approx(2 * entry.score_min) == pytest.approx(theirs(folder), abs=1e-6)
    assert said(entry) == "official: multiplied by 2 as scaling.json says; the rules give 1"


def test_a_score_is_normalised_after_the_package_checker(tmp_path: Path) -> None:
    """The summarizer reads scaling.json before it writes it, so that its first score is another one."""
    folder = make(tmp_path)
    for path in folder.iterdir():
        entries = read(path)
        for each in entries:
            if "epoch_num" in each["metadata"]:
                each["metadata"]["epoch_num"] -= 1
        write(path, entries)
    entry = entry_of(folder)
    assert entry.official is not None
    assert entry.convergence is not None
    assert entry.convergence.factor > 1
    assert entry.official.minutes == pytest.approx(theirs(folder), abs=1e-6)
    assert said(entry).startswith("official: not yet normalised, since the package checker has not written")
    assert package_verdict(folder.parents[3], "1.0.0") is True
    entry = entry_of(folder)
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx(entry.score_min) == pytest.approx(theirs(folder), abs=1e-6)
    assert said(entry) == ""


def test_an_aborted_run_counts_for_the_official_tool_alone(tmp_path: Path) -> None:
    folder = make(tmp_path)
    change(folder, 1, "run_stop", metadata={"status": "aborted"})
    entry = entry_of(folder)
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx(theirs(folder), abs=1e-6)
    assert entry.score_min != pytest.approx(entry.official.minutes, abs=1e-3)
    assert said(entry) == "official: it counts 1 run whose run_stop is not a success"


@pytest.mark.parametrize(("misses", "scored"), [(1, True), (2, False)])
def test_runs_below_the_target(tmp_path: Path, misses: int, scored: bool) -> None:
    folder = make(tmp_path)
    for number in range(misses):
        change(folder, number, "eval_accuracy", value=0.5)
    entry = entry_of(folder)
    assert entry.official is not None
    assert (entry.official.minutes is not None) == scored == (entry.score_min is not None)
    assert entry.official.minutes == pytest.approx(theirs(folder), abs=1e-6)
    assert scored or said(entry) == "official: no score: 2 logs are not accepted; one may"


def test_a_run_whose_log_is_rejected_did_converge(tmp_path: Path) -> None:
    folder = make(tmp_path)
    rejected = "its log is rejected: Required EXACTLY_ONE occurrence of 'opt_betas' but found 0"
    for number in range(2):
        path = folder / f"result_{number}.txt"
        write(path, [entry for entry in read(path) if entry["key"] != "opt_betas"])
        entry = entry_of(folder)
        if number == 0:
            assert entry.score_min is not None
            assert f"status: result_0 counts as the slowest: {rejected}" in entry.notes
    assert entry.score_min is None
    assert f"status: 2 runs do not count (result_0, result_1: {rejected}); one may" in entry.faults
    change(folder, 1, "run_stop", metadata={"status": "aborted"})
    words = f"status: 2 runs do not count (result_0: {rejected}; result_1: did not converge); one may"
    assert words in entry_of(folder).faults


def test_unequal_instances_end_the_official_command(tmp_path: Path) -> None:
    folder = make(tmp_path, weak=True)
    change(folder, 1, "number_of_nodes", value=3)
    entry = entry_of(folder)
    assert str(theirs(folder)).startswith("crash: AssertionError")
    assert said(entry).startswith("official: the tool crashes, with all of the organization: AssertionError: instances")
    assert "sizes: instances of 16 and 24 accelerators" in entry.faults
    beside = make(tmp_path)
    found = {each.first.mode: each for each in entries_of(read_runs(find_runs([beside.parents[3]])))}
    other = found["time to train"]
    assert other.official is not None
    assert other.official.minutes is not None
    assert said(other) == "official: of this folder alone; the command crashes on box/weak/deepcam and scores none"
    assert said(entry_of(beside)) == "", "of no other folder anything is known"


def test_rejected_instances_are_left_out_by_the_official_tool(tmp_path: Path) -> None:
    folder = make(tmp_path, weak=True)
    write(folder / "result_8.txt", read(folder / "result_0.txt"))
    write(folder / "result_9.txt", read(folder / "result_0.txt"))
    change(folder, 8, "eval_accuracy", value=0.5)
    entry = entry_of(folder)
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx(theirs(folder), abs=1e-6)
    assert entry.score_min is None
    assert said(entry) == (
        "official: it leaves out 1 log that it rejects, and the rules ask to prune them; "
        "it counts 1 instance with the seed of another"
    )


def test_logs_without_a_number_count_officially(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (folder / "result_4.txt").rename(folder / "result_last.txt")
    entry = entry_of(folder)
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx(theirs(folder), abs=1e-6)
    assert "it counts files whose names have no number" in said(entry)


def test_power_logs_are_read_by_the_official_tool(tmp_path: Path) -> None:
    folder = make(tmp_path)
    for path in sorted(folder.glob("result_*.txt")):
        power = folder / "power" / path.stem
        power.mkdir(parents=True)
        lines = [
            ("power_measurement_start", None, 0),
            ("power_reading", 600, 1000),
            ("power_measurement_stop", None, 2000),
        ]
        entries = [{"key": key, "value": value, "time_ms": at, "metadata": {}} for key, value, at in lines]
        write(power / "node_0.txt", entries)
    entry = entry_of(folder)
    assert entry.official is not None
    assert entry.official.minutes == pytest.approx(entry.score_min) == pytest.approx(theirs(folder), abs=1e-6)
    (folder / "power" / "result_2" / "node_0.txt").unlink()
    assert "the tool crashes, with all of the organization: AssertionError" in said(entry_of(folder))
    assert str(theirs(folder)).startswith("crash: AssertionError")


@pytest.mark.parametrize(("edit", "words"), [
    (lambda system: system.pop("framework"), "systems/box.json has no framework"),
    (lambda system: system.update(number_of_nodes=""), "systems/box.json: ValueError"),
    (lambda system: system.update(hw_notes=3), "systems/box.json: TypeError"),
])  # fmt: skip
def test_a_description_that_ends_the_official_command(
    tmp_path: Path, edit: Callable[[dict[str, object]], object], words: str
) -> None:
    folder = make(tmp_path)
    path = folder.parents[3] / "systems" / "box.json"
    system = json.loads(path.read_text())
    edit(system)
    path.write_text(json.dumps(system))
    assert said(entry_of(folder)).startswith(f"official: the tool crashes, with all of the organization: {words}")
    assert str(theirs(folder)).startswith("crash: ")


def test_the_first_round_has_no_official_score(tmp_path: Path) -> None:
    folder = tmp_path / "v0.7" / "ORG" / "results" / "box" / "deepcam"
    folder.mkdir(parents=True)
    (folder / "result_0.txt").write_bytes(OLD.read_bytes())
    entry = entry_of(folder)
    assert entry.official is None
    assert said(entry) == "official: v0.7 has no official HPC ruleset"


def test_no_rules_are_read_from_elsewhere(tmp_path: Path) -> None:
    """The official checker would run a file that a log names, as its rules are code."""
    (tmp_path / "evil.yaml").write_text("- BEGIN:\n    CODE: open('" + str(tmp_path / "ran") + "', 'w')\n")
    text = DEEPCAM.read_text("latin-1").replace('"multistep"', f'"{"/.." * 30}{tmp_path}/evil"')
    log = official_log("log", text, "3.0.0")
    assert not log.accepted
    assert not (tmp_path / "ran").exists()
    assert messages_of([], [], "3.0.0"), "and the next log is checked as ever"


def test_scores_of_many_folders_come_from_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcbench.mlperf.official_folders.FEWEST", 1)
    folders = [make_folder(tmp_path / "v1.0" / name, "deepcam", random.Random(3)) for name in ("A", "B")]
    first, second = entries_of(read_runs(find_runs(folders)))
    assert first.official == second.official
    assert first.official is not None
    assert first.official.minutes == pytest.approx(theirs(folders[0]), abs=1e-6)
    assert len(first.logs) == len(log_files(folders[0])) == 5


def test_a_part_of_a_folder_has_no_official_score(tmp_path: Path) -> None:
    folder = make(tmp_path)
    (entry,) = entries_of(read_runs(find_runs([folder / "result_0.txt", folder / "result_1.txt"])))
    assert entry.official is None
    assert said(entry) == "official: 2 of 5 logs of the folder were given"


def test_the_ruleset_of_a_place() -> None:
    assert [ruleset_of_round(name) for name in ("v1.0", "v3.0", "v0.7", "v4.0", None)] == [
        "1.0.0", "3.0.0", None, None, None,
    ]  # fmt: skip
    assert round_around(Path("/x/hpc_results_v2.0/ORG/results/s/strong/deepcam/result_1.txt")) == "v2.0"
    assert round_around(Path("/x/v2.0/ORG")) == "v2.0"
    assert round_around(Path("/x/hpc_results_v2.0-main/ORG")) == "v2.0"
    assert round_around(Path("/x/v2.0/mine/ORG/results/s")) is None


def test_edits_of_the_packages_are_real(tmp_path: Path) -> None:
    """The mutations change what they are named for."""
    folder = make(tmp_path)
    before = {path.name: path.read_text() for path in log_files(folder)}
    shift_epochs(folder, random.Random(1))
    edit_some(folder, random.Random(1), lambda entry: entry.update(value=1), "seed")
    assert all(before[path.name] != path.read_text() for path in log_files(folder))


def test_what_the_official_tools_take_from_a_log_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance with seeds and a convergence, and one log that is broken, come back as they were."""
    logs = log_files(make(tmp_path))
    logs[0].write_text(":::MLLOG {\n", encoding="utf-8")
    for path in tmp_path.rglob("*.*"):
        os.utime(path, (1e9, 1e9))
    cache = LogCache(tmp_path / "cache" / "logs.sqlite")
    asked = [(path, "3.0.0") for path in logs]
    first = official_logs(asked, cache)
    assert [log.seeds == () for log in first[:2]] == [True, False]
    monkeypatch.setattr(official_folders, "read_one", lambda asked: pytest.fail("read again"))
    assert official_logs(asked, cache) == first


def test_a_folder_is_checked_whatever_its_name_means_in_a_pattern(tmp_path: Path) -> None:
    """The official tools take the name of the folder for a pattern, and find no log there."""
    folder = make(tmp_path / "runs[1]")
    assert len(log_files(folder)) == 5
    assert check_runs(folder, "1.0.0").passed
    assert entry_of(folder).official is not None
