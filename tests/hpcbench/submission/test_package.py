"""``hpcbench package``: trees that the official checkers accept, and words for what they lack."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import as_tree, resolve
from hpcbench.results.run_folder import RunFolder
from hpcbench.submission.scrub import Scrubber
from tests.hpcbench.submission.conftest import HOME, HOST, USER, BuildRun, build

REPLACED = "submission_org", "submission_platform", "submission_status"


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission of 12 runs, two of them too many: the minutes are 10, 11, ..., 21."""
    folder = tmp_path_factory.mktemp("packaged")
    runs = [build(folder / "runs" / f"r{number:02d}", seed=100 + number, minutes=10 + number, start_min=30 * number)
            for number in range(12)]  # fmt: skip
    facts = folder / "facts.yaml"
    facts.write_text("system_name: box\nstatus: onprem\ncooling: warm water\nother_software_stack: {mpi: 4.2}\n")
    words = ["package", "LAB", *map(str, runs), "--facts", str(facts), "--out", str(folder / "v3.0")]
    assert main(words) == 0
    return folder


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text().splitlines()]


@pytest.mark.slow
def test_the_official_tools_accept_it_in_a_process_of_their_own(packaged: Path) -> None:
    command = [sys.executable, "-m", "mlperf_logging.package_checker", "v3.0/LAB", "hpc", "3.0.0"]
    done = subprocess.run(command, cwd=packaged, capture_output=True, text=True, check=True)
    assert "PACKAGE CHECKER FOUND NO ERRORS, SUCCESS !" in done.stderr
    assert "ERROR - " not in done.stderr


def test_a_category_that_nobody_stated_is_told(
    qualifying: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The default of the runs goes into their logs and into the description, with the same consequences."""
    said = {}
    for name, text in (("unstated", ""), ("stated", "status: research\n")):
        (tmp_path / name).write_text(f"system_name: box\n{text}")
        words = ["package", "LAB", str(qualifying[0]), "--facts", str(tmp_path / name)]
        words += ["--out", str(tmp_path / f"of{name}")]
        assert main(words) == 1
        said[name] = "category not stated, so it is research" in " ".join(capsys.readouterr().out.split())
    assert said == {"unstated": True, "stated": False}


@pytest.mark.slow
def test_of_more_runs_the_median_window_counts(packaged: Path) -> None:
    """Windows of ten in a row have the scores 14.5, 15.5 and 16.5 minutes: it is that of 11 to 20."""
    logs = sorted((packaged / "v3.0/LAB/results/box/strong/cosmoflow").glob("result_*.txt"))
    seeds = {next(line["value"] for line in lines(log) if line["key"] == "seed") for log in logs}
    assert seeds == set(range(101, 111))
    assert [log.name for log in logs] == [f"result_{number}.txt" for number in range(10)]


def test_logs_are_those_of_the_runs_but_for_names(packaged: Path) -> None:
    before = lines(packaged / "runs/r01/mllog.txt")
    after = lines(packaged / "v3.0/LAB/results/box/strong/cosmoflow/result_0.txt")
    changed = {(line["key"], new["value"]) for line, new in zip(before, after, strict=True) if line != new}
    assert changed == {
        ("submission_org", "LAB"), ("submission_platform", "box"), ("submission_status", "onprem"),
        ("cache_clear", "dropped pages below <path> on <host>"),
    }  # fmt: skip


def test_no_name_of_a_user_a_host_or_a_path_is_in_it(packaged: Path) -> None:
    files = [path for path in (packaged / "v3.0").rglob("*") if path.is_file()]
    names = (USER.encode(), HOST.encode(), HOME.encode(), str(packaged).encode())
    assert len(files) > 300
    assert [path for path in files if any(name in path.read_bytes() for name in names)] == []
    assert any(HOST in (packaged / "runs/r01" / name).read_text() for name in ("mllog.txt", "system.json"))


def test_the_system_description_has_what_was_measured_and_what_people_say(packaged: Path) -> None:
    description = json.loads((packaged / "v3.0/LAB/systems/box.json").read_text())
    assert (description["submitter"], description["system_name"], description["status"]) == ("LAB", "box", "onprem")
    assert (description["number_of_nodes"], description["division"]) == ("16", "closed")
    assert (description["cooling"], description["host_processor_model_name"]) == ("warm water", "AMD EPYC 7742")
    assert description["other_software_stack"]["mpi"] == 4.2
    assert description["other_software_stack"]["nccl_version"] == "2.11.4"
    assert len(description) == 33


def test_settings_and_code_make_the_run_again(packaged: Path) -> None:
    folder = packaged / "v3.0/LAB/benchmarks/cosmoflow/implementations/hpcbench"
    settings = folder / "settings/box-strong.yaml"
    config = resolve(find_application("cosmoflow"), None, [settings])
    before = yaml.safe_load((packaged / "runs/r01/config.yaml").read_text())
    again = as_tree(config)
    for name in ("optim", "schedule", "model", "parallel"):
        assert again[name] == before[name]
    assert (config.train.seed, config.data.root) == (None, "dataset")
    assert "--config settings/box-strong.yaml --data.root dataset" in (folder / "README.md").read_text()
    command = [sys.executable, "-c", "import hpcbench, apps.cosmoflow, staging; print(hpcbench.__file__)"]
    env = {"PYTHONPATH": str(folder / "code")}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parents[1] == folder / "code"
    points = [
        (point.name, point.value)
        for found in distributions(path=[str(folder / "code")])
        for point in found.entry_points.select(group="hpcbench.apps")
    ]
    assert ("cosmoflow", "apps.cosmoflow:application") in points  # for a Python without hpcbench installed


def test_a_system_named_like_a_host_and_a_user_named_like_an_optimizer_stay(
    tmp_path: Path, build_run: BuildRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "sgd")
    run = build_run(tmp_path / "r", data__root="/home/mlperf/set", submission__status="onprem")
    assert main(["package", "LAB", str(run), "--system", HOST, "--out", str(tmp_path / "v3.0")]) == 1
    tree = tmp_path / "v3.0/LAB"
    description = json.loads((tree / f"systems/{HOST}.json").read_text())
    assert (description["system_name"], description["submitter"]) == (HOST, "LAB")
    settings = tree / f"benchmarks/cosmoflow/implementations/hpcbench/settings/{HOST}-strong.yaml"
    config = resolve(find_application("cosmoflow"), None, [settings])
    assert (config.optim.name, config.preset, config.submission.platform) == ("sgd", "mlperf", HOST)


@pytest.mark.parametrize(
    ("setting", "published"),
    [
        ("nid1", "nid1"), ("none", "none"), ("/lustre/ann/x", "<path>"), ("ann/x", "<user>/x"),
        ("of ann, on nid1", "of <user>, on <host>"), ("$TMPDIR/x", "$TMPDIR/x"), ("nid1.site.org", "<host>"),
    ],
)  # fmt: skip
def test_in_settings_only_paths_and_sentences_are_scrubbed(setting: str, published: str) -> None:
    scrub = Scrubber(frozenset({"nid1", "nid1.site.org"}), frozenset({"ann", "none"}))
    assert scrub.settings({"model": {"names": [setting]}}) == {"model": {"names": [published]}}


def test_short_names_leave_logs_and_words_that_stay_in_settings_are_told(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host of two letters, and one that is the value of a setting; a user of one letter."""
    run = build_run(tmp_path / "r")
    (run / "job.sh").write_text("cd /home/q/set\n")
    log, config = run / "mllog.txt", run / "config.yaml"
    log.write_text(log.read_text().replace(f" on {HOST}", " on n1").replace(HOST, "n1"))
    config.write_text(config.read_text() + "plugin:\n  rack: n1\n  note: of n1\n")
    environment = json.loads((run / "environment.json").read_text())
    RunFolder(run).write_json("environment.json", {**environment, "host": "n1"})
    assert main(["package", "LAB", str(run), "--system", "box", "--out", str(tmp_path / "v3.0")]) == 1
    words, tree = said(capsys), tmp_path / "v3.0/LAB"
    (line,) = [
        each for each in lines(tree / "results/box/strong/cosmoflow/result_0.txt") if each["key"] == "cache_clear"
    ]
    assert line["value"] == "dropped pages below <path> on <host>"
    settings = tree / "benchmarks/cosmoflow/implementations/hpcbench/settings/box-strong.yaml"
    assert yaml.safe_load(settings.read_text())["plugin"] == {"rack": "n1", "note": "of <host>"}
    assert "settings/box-strong.yaml: plugin.rack (n1) is the name of a host or user too, and stays" in words
    assert "change it in the file if it names the host or user" in words
    assert "names of hosts and users: q: too short to be told from other text, and not removed" in words


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, on one line."""
    return " ".join(capsys.readouterr().out.split())


def test_too_few_runs_and_one_system(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [build_run(Path(f"r{number}"), application="deepcam", seed=number, epochs=7, job=True) for number in (1, 2)]
    runs.append(build_run(Path("r3"), application="deepcam", seed=2, epochs=7))
    system = json.loads((runs[2] / "system.json").read_text())
    RunFolder(runs[2]).write_json("system.json", {**system, "accelerator_model_name": "another"})
    assert main(["package", "LAB", *map(str, runs), "--system", "box"]) == 1
    printed = capsys.readouterr().out
    command = "hpcbench submit deepcam --site perlmutter-gpu --nodes 16 --time 90m --no-stage"
    assert f"{command} --config r1/config.yaml --train.seed null\n" in printed
    words = " ".join(printed.split())
    assert "box, deepcam, time to train: 3 of 5 runs; 2 more runs with new seeds" in words
    assert "1 run with the seed of another; make 1 with new seeds" in words
    assert "not one system; accelerator_model_name: NVIDIA A100-SXM4-80GB (400W) (r1), another (r3)" in words
    assert "Official checkers: errors" in words
    assert "found 3, expected 5" in words
    assert words.endswith("Not submittable yet.")
    assert Path("submissions/v3.0/LAB/systems/box.json").exists()
    assert max(map(len, printed.replace(command, "").splitlines())) <= 100


def test_quality_below_the_published_one(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [build_run(tmp_path / f"r{number}", application="deepcam", seed=number, epochs=7,
                      quality=0.79 if number < 3 else None) for number in range(1, 6)]  # fmt: skip
    assert main(["package", "LAB", *map(str, runs), "--system", "box", "--out", str(tmp_path)]) == 1
    words = said(capsys)
    assert "not submittable: quality below 0.82 (best 0.79) in 2 runs; one may miss it: r1, r2" in words
    assert "2 files do not comply, directory cannot be accepted" in words


def test_one_miss_is_the_slowest_and_faster_epochs_are_normalised(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Epochs of 6.5 to 7: the mean of the four that converged without the fastest; the reference is 6.944."""
    runs = [build_run(tmp_path / f"r{number}", application="deepcam", seed=number, epochs=6 if number < 3 else 7,
                      quality=0.7 if number == 5 else None) for number in range(1, 6)]  # fmt: skip
    assert main(["package", "LAB", *map(str, runs), "--system", "box", "--out", str(tmp_path)]) == 0
    words = said(capsys)
    assert "quality below 0.82 (best 0.7) in 1 run, which counts as the slowest: r5" in words
    scaling = json.loads((tmp_path / "LAB/results/box/strong/deepcam/scaling.json").read_text())
    factor = 6.9444 / (20 / 3)
    assert scaling["scaling_factor"] == pytest.approx(factor, rel=1e-4)
    assert f"{10 * factor:.3f}" in words


def test_a_copy_of_a_run_with_another_seed_is_no_run(
    tmp_path: Path, qualifying: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The official checkers accept it."""
    copied = shutil.copytree(qualifying[0], tmp_path / "copied")
    log = copied / "mllog.txt"
    log.write_text(log.read_text().replace('"value": 100,', '"value": 999,'))
    runs = [*qualifying[:9], copied]
    assert main(["package", "LAB", *map(str, runs), "--system", "box", "--out", str(tmp_path)]) == 1
    words = said(capsys)
    assert "copies: 1 log with the start, the times and the evaluations of another: one run" in words
    assert "Official checkers: no errors" in words
    assert "Not submittable yet." in words


def test_throughput_prunes_and_asks_for_time_to_train(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six instances beside one another on 96 nodes; one did not converge. They last from minute 0 to 15."""
    runs = [build_run(tmp_path / f"r{number}", application="deepcam", seed=1 + number, epochs=6 if number < 3 else 7,
                      minutes=10 + number, quality=0.7 if number == 0 else None) for number in range(6)]  # fmt: skip
    words = ["package", "LAB", "--throughput", *map(str, runs), "--system", "box", "--out", str(tmp_path)]
    assert main(words) == 1
    printed = said(capsys)
    assert "box deepcam throughput 5 15.000 0.3333" in printed
    assert "convergence: 6.667 epochs, the reference 6.944, least accepted" in printed
    assert "normalised" not in printed
    assert "throughput is submitted together with time to train alone add 5 runs of deepcam" in printed
    assert "pruned, without convergence or with the seed of another: r0" in printed
    assert "Official checkers: no errors" in printed
    weak = tmp_path / "LAB/results/box/weak/deepcam"
    assert (weak / "pruned_results/result_0.txt").exists()
    assert json.loads((tmp_path / "LAB/systems/box.json").read_text())["number_of_nodes"] == "96"


def test_simulated_ranks_and_cut_off_runs(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [build_run(tmp_path / f"r{number}", application="deepcam", seed=1 + number, epochs=7) for number in range(7)]
    summary = RunFolder(runs[0]).read_summary()
    summary.simulated_ranks, summary.energy_j = 8, 1e6
    RunFolder(runs[0]).write_summary(summary)
    cut = RunFolder(runs[5]).read_summary()
    cut.status, cut.cause, cut.reason = "aborted", "signal", "SIGTERM"
    RunFolder(runs[5]).write_summary(cut)
    (runs[6] / "summary.json").unlink()
    assert main(["package", "LAB", *map(str, runs), "--system", "box", "--out", str(tmp_path)]) == 1
    words = said(capsys)
    assert "ranks or nodes were simulated in 1 run: times are not theirs" in words
    assert "r5 is left out: it was cut off (SIGTERM)" in words
    assert "r6 is left out: its run has not ended" in words
    assert "energy was read, but only as totals" in words


def log_power(folder: Path, readings: int = 60, nodes: int = 16, covers: str = "node", end: bool = True) -> None:
    """Power logs of 500 W, as ``measure.power`` writes them, on an invented host."""
    (folder / "power").mkdir()
    told = {"source": "pm_counters" if covers == "node" else "RAPL", "covers": covers, "host": HOST}
    events = [("power_measurement_start", None, told), *[("power_reading", 500.0, {})] * readings]
    events += [("power_measurement_stop", None, {})] if end else []
    text = ""
    for second, (key, value, metadata) in enumerate(events):
        entry = {"namespace": "", "time_ms": 1000 * second, "event_type": "POINT_IN_TIME", "key": key, "value": value,
                 "metadata": metadata}  # fmt: skip
        text += f":::MLLOG {json.dumps(entry)}\n"
    for node in range(nodes):
        (folder / "power" / f"node_{node}.txt").write_text(text)


@pytest.mark.slow
def test_power_logs_come_along_and_what_they_lack_is_told(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [build_run(tmp_path / f"r{number}", application="deepcam", seed=1 + number, epochs=7) for number in range(5)]
    for run in runs:
        log_power(run)
    words = ["package", "LAB", *map(str, runs), "--system", "box"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    printed = said(capsys)
    assert "power: " not in printed
    assert "power logs" not in printed
    logs = sorted((tmp_path / "whole/LAB/results/box/strong/deepcam/power").glob("result_*/node_*.txt"))
    assert len(logs) == 5 * 16
    assert HOST not in logs[0].read_text()
    for run in runs[:4]:
        shutil.rmtree(run / "power")
    log_power(runs[0], readings=59)
    log_power(runs[1], nodes=15)
    log_power(runs[2], covers="2 processors")
    log_power(runs[3], end=False)
    main([*words, "--out", str(tmp_path / "short")])
    printed = said(capsys)
    assert "power: only 59 readings in a log; the rules ask for at least 60" in printed
    assert "power: 15 logs of 16 nodes in r1" in printed
    assert "power: of 2 processors (RAPL); the rules ask for whole nodes at their power supply" in printed
    assert "power: a log without its end: r3" in printed
    shutil.rmtree(runs[4] / "power")
    main([*words, "--out", str(tmp_path / "none")])
    assert "1 run without power logs, so that none are in the package" in said(capsys)
    assert not (tmp_path / "none/LAB/results/box/strong/deepcam/power").exists()


def test_the_open_division_needs_no_reference_point(
    tmp_path: Path, build_run: BuildRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four epochs are faster than any reference, which is only asked for in the closed division."""
    for division, code in (("open", 0), ("closed", 1)):
        runs = [build_run(tmp_path / division / f"r{number}", application="deepcam", seed=1 + number, epochs=4,
                          submission__division=division) for number in range(5)]  # fmt: skip
        words = ["package", "LAB", *map(str, runs), "--system", "box", "--out", str(tmp_path / division)]
        assert main(words) == code
        printed = said(capsys)
        assert ("convergence: 4 epochs" in printed) == (division == "closed")
    assert "too fast" in printed
    assert "use a published recipe for this batch" in printed
