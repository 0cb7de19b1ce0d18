"""``hpcbench results``: what is found, shown and written, and bad input."""

from __future__ import annotations

import errno
import json
import os
import random
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.cli.main import main
from hpcbench.mlperf.reached_target import QUALITIES
from hpcbench.mlperf.run_record import RunRecord
from hpcbench.results.not_verified import NOT_VERIFIED
from tests.hpcbench.mlperf.packages import make_folder, make_rounds
from tests.hpcbench.mlperf.test_read_log import COSMOFLOW, DEEPCAM, WITHIN_EPOCHS, in_round

ENTRIES = """\
deepcam, time to train
round        organization  system  score  official  rules
-----------  ------------  ------  -----  --------  ------
v1.0 closed  CENTRE        box     1.545     1.545  kept
v2.0 closed  CENTRE        box         -     2.507  broken

cosmoflow, time to train
round        organization  system  score  official  rules
-----------  ------------  ------  -----  --------  -----
v1.0 closed  OTHER         box     7.508     7.508  kept

deepcam, throughput
round      organization  system  score  official  rules
---------  ------------  ------  -----  --------  ------
v1.0 open  THIRD         box         -     2.728  broken

v1.0 CENTRE box deepcam: trajectory: 5 of 5 runs have the same
v1.0 OTHER box cosmoflow: trajectory: 10 of 10 runs have the same
v1.0 THIRD box deepcam: status: 1 instance without convergence, to be pruned
v1.0 THIRD box deepcam: alone: throughput without a time to train of deepcam by the organization
v1.0 THIRD box deepcam: trajectory: 5 of 5 runs have the same
v1.0 THIRD box deepcam: official: it counts 1 run whose run_stop is not a success
v2.0 CENTRE box deepcam: convergence: 21 epochs, the reference 22.62, least accepted 21.11: too
  fast
v2.0 CENTRE box deepcam: trajectory: 5 of 5 runs have the same
v2.0 CENTRE box deepcam: official: multiplied by 1.5 as scaling.json says; the rules give 1

Scores are computed here from the logs. Result not verified by MLCommons Association.
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept in the cache of the user who runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A round with three runs of two systems, one of them pruned."""
    in_round(tmp_path, COSMOFLOW, "one", mode="weak")
    in_round(tmp_path, DEEPCAM, "two", name="result_10.txt")
    pruned = in_round(tmp_path, DEEPCAM, "two", name="result_2.txt")
    (pruned.parent / "pruned_results").mkdir()
    pruned.rename(pruned.parent / "pruned_results" / "result_2.txt")
    return tmp_path / "v1.0"


def test_a_round_is_shown_by_folder(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", str(published)]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.partition("\n\n")[0].splitlines()[2:]]
    assert [row[1:4] for row in rows] == [["one", "cosmoflow", "1"], ["two", "deepcam", "1"], ["two", "deepcam", "1"]]
    assert rows[0][4:8] == ["1", "1,024", "1,024", "35"]
    assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_the_table_has_a_row_for_each_run(published: Path, suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"runs{suffix}"
    assert main(["results", str(published), str(WITHIN_EPOCHS), "--out", str(out)]) == 0
    frame = pd.read_csv(out) if suffix == ".csv" else pd.read_json(out)
    assert list(frame["mode"])[:3] == ["throughput", "time to train", "time to train"]
    assert list(frame["pruned"]) == [False, False, True, False]
    assert pd.isna(frame["nodes"][3])
    assert list(frame["origin"]) == ["published"] * 3 + ["log"]
    assert list(frame["verified"].fillna("")) == ["", "", "", NOT_VERIFIED]
    parts = frame[["training_s", "evaluation_s", "rest_s"]].sum(axis=1) + frame["staging_s"].fillna(0)
    assert list(parts) == pytest.approx(list(frame["time_to_train_s"]))
    epochs = frame["epochs_s"][0]
    assert sum(json.loads(epochs)) == pytest.approx(frame["training_s"][0])


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_seeds_are_exact_also_where_another_run_has_none(suffix: str, tmp_path: Path) -> None:
    """A floating-point number holds whole numbers only up to 2^53."""
    seeds = [2**53 + 1, None, 2**63 - 1]
    for number, seed in enumerate(seeds):
        lines = [line for line in COSMOFLOW.read_text().splitlines() if '"key": "seed"' not in line]
        event = {"namespace": "", "time_ms": 1, "event_type": "POINT", "key": "seed", "value": seed, "metadata": {}}
        lines += [] if seed is None else [f":::MLLOG {json.dumps(event)}"]
        (tmp_path / f"result_{number}.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / f"runs{suffix}"
    assert main(["results", str(tmp_path), "--out", str(out)]) == 0
    if suffix == ".csv":
        found = list(pd.read_csv(out, dtype=str)["seed"].fillna("None"))
    else:
        found = [str(row["seed"]) for row in json.loads(out.read_text())]
    assert found == [str(seed) for seed in seeds]


def test_a_single_run_is_counted_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.csv"
    assert main(["results", str(WITHIN_EPOCHS), "--out", str(out)]) == 0
    assert capsys.readouterr().out.endswith(f"\n1 run: {out}\n")


def test_parquet_is_written_where_it_can_be(
    published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["results", str(published), "--out", str(tmp_path / "runs.parquet")])
    if find_spec("pyarrow") is None:
        assert code == 2
        assert "Parquet needs pyarrow" in capsys.readouterr().err
    else:
        assert len(pd.read_parquet(tmp_path / "runs.parquet")) == 3


def test_a_run_that_is_named_twice_is_one(published: Path, tmp_path: Path) -> None:
    """And where it is named first it stays."""
    log = next(published.rglob("result_10.txt"))
    assert main(["results", str(log), str(published), "--out", str(tmp_path / "runs.csv")]) == 0
    assert list(pd.read_csv(tmp_path / "runs.csv")["application"]) == ["deepcam", "cosmoflow", "deepcam"]


def test_pages_of_reports_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ``runs/*`` names them."""
    (tmp_path / "comparison.html").write_text("<html>")
    (tmp_path / "figures").mkdir()
    assert main(["results", str(COSMOFLOW), str(tmp_path / "comparison.html"), str(tmp_path / "figures")]) == 0
    assert main(["results", str(tmp_path / "comparison.html")]) == 2
    assert "holds no line of an official log" in capsys.readouterr().err


def test_a_log_that_cannot_be_read_spoils_no_others(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A round has thousands of them, and an entry may have one run that failed."""
    log = next(published.rglob("result_10.txt"))
    for number in range(3):
        log.with_name(f"result_{number}.txt").write_bytes(log.read_bytes())
    log.with_name("result_3.txt").write_bytes(b"")
    assert main(["results", str(published)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "result_3.txt: cannot be read: " in shown
    assert "v1.0 ORG two deepcam: status: result_3 counts as the slowest: its log cannot be read" in shown


def test_where_no_log_can_be_read_one_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = [tmp_path / name for name in ("README.md", "LICENSE")]
    for path in others:
        path.write_text("no log")
    assert main(["results", *map(str, others)]) == 2
    shown, said = capsys.readouterr()
    assert f"none of 2 logs can be read; the first: {others[0]}: holds no line of an official log" in said
    assert said.count("\n") == 1
    assert not shown
    assert main(["results", str(others[0]), str(COSMOFLOW)]) == 0


def test_each_column_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", "--columns"]) == 0
    shown = capsys.readouterr().out
    for each in fields(RunRecord):
        assert f"\n{each.name} " in f"\n{shown}"
        assert each.metadata["lines"]
    words = " ".join(shown.split())
    for key, applications in (("eval_error", "cosmoflow, oc20"), ("eval_accuracy", "deepcam, openfold")):
        assert f"{key} ({applications})" in words
        assert all(QUALITIES[application] == key for application in applications.split(", "))
    assert "of OpenFold, which counts samples there, divided by train_samples" in words
    assert "where a log for time to train has none, that of the system description" in words


@pytest.mark.parametrize(("words", "message"), [
    ([], "give run folders, logs, or folders of a round"),
    (["nowhere"], "nowhere does not exist; give run folders, logs"),
    (["."], "holds no run: no mllog.txt and no result_0.txt"),
    (["LOG", "--out", "runs.xlsx"], "the suffix must be one of .csv, .json, .parquet"),
    (["LOG", "--out", "there.csv"], "there.csv exists; remove it"),
    (["LOG", "--out", "no/where.csv"], "the folder no does not exist"),
    (["LOG", "--out", "/proc/runs.csv"], "--out /proc/runs.csv cannot be written (No such file or directory)"),
    (["LOG", "--entries", "/proc/runs.csv"], "--entries /proc/runs.csv cannot be written (No such file or directory)"),
    (["LOG", "--out", f"{'x' * 240}.csv"], "cannot be written (File name too long); give another name"),
    (["LOG", "--out", "same.csv", "--entries", "./same.csv"], "--out and --entries are both same.csv; give the table"),
    (["there.csv"], "holds no line of an official log"),
])  # fmt: skip
def test_bad_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("mine")
    assert main(["results", *(str(COSMOFLOW) if word == "LOG" else word for word in words)]) == 2
    shown, said = capsys.readouterr()
    assert message in said
    assert said.count("\n") == 1
    assert not shown, "it is said before thousands of logs are read"
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_a_table_that_cannot_be_finished_leaves_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(frame: pd.DataFrame, path: Path, **_: object) -> None:
        path.write_text("path")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pd.DataFrame, "to_csv", fill)
    assert main(["results", str(COSMOFLOW), "--out", str(tmp_path / "runs.csv")]) == 2
    assert "runs.csv cannot be written (No space left on device); give another name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_entries_have_a_score_or_say_why_not(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["results", str(published)]) == 0
    shown = capsys.readouterr().out
    assert "v1.0 ORG two deepcam: count: 1 run where the rules ask for 5" in shown
    assert "v1.0 ORG one cosmoflow: count: 1 instance, fewer than 10" in shown
    assert "Result not verified by MLCommons Association." in shown


@pytest.mark.parametrize("target", ["0.124", "0.01"])
def test_minutes_of_a_log_by_itself_are_marked(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    """Nothing says that it is a published one; a log that misses its target has no minutes."""
    named = json.dumps({"key": "quality_target", "time_ms": 0, "value": float(target), "metadata": {}})
    (tmp_path / "result_1.txt").write_text(f":::MLLOG {named}\n{COSMOFLOW.read_text('latin-1')}")
    assert main(["results", str(tmp_path / "result_1.txt"), "--out", str(tmp_path / "runs.csv")]) == 0
    said = "Minutes are computed here from the logs. Result not verified by MLCommons Association."
    assert (said in capsys.readouterr().out) is (target == "0.124")
    assert list(pd.read_csv(tmp_path / "runs.csv")["verified"]) == [NOT_VERIFIED]


@pytest.mark.slow
def test_minutes_of_your_own_runs_are_marked_too(
    small_cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As docs/results.md says of every table with them."""
    words = ["train", "cosmoflow", "--preset", "smoke", "--data.root", str(small_cosmos), "--train.page", "false"]
    words += ["--train.max_epochs", "1", "--train.baselines", "false"]
    said = "\nMinutes are computed here from the logs. Result not verified by MLCommons Association.\n"
    for target, code in (("100", 0), ("0", 3)):
        run = tmp_path / target
        assert main([*words, "--train.target", target, "--run-dir", str(run)]) == code
        capsys.readouterr()
        assert main(["results", str(run)]) == 0
        assert capsys.readouterr().out.endswith(said) is (code == 0), "a run that misses its target has no minutes"


def test_entries_of_throughput_have_models_per_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path / "v1.0" / "CENTRE", "deepcam", random.Random(1), weak=True)
    assert main(["results", str(tmp_path)]) == 0
    head, _, row = capsys.readouterr().out.partition("\n\ndeepcam, throughput\n")[2].splitlines()[:3]
    assert head.split()[-3:] == ["official", "models/min", "rules"]
    assert float(row.split()[-2]) > 0


def test_the_table_of_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Made-up rounds from published logs; the scores are those of the official tool, as other tests hold."""
    make_rounds(tmp_path)
    assert main(["results", str(tmp_path), "--entries", str(tmp_path / "entries.csv")]) == 0
    shown = capsys.readouterr().out
    assert shown[shown.index("deepcam, time to train") :].partition("\n\n4 entries")[0] == ENTRIES.rstrip()
    frame = pd.read_csv(tmp_path / "entries.csv")
    assert list(frame["official"].round(3)) == [1.545, 7.508, 2.728, 2.507]
    assert list(frame["ruleset"]) == ["1.0.0", "1.0.0", "1.0.0", "2.0.0"]
    assert list(frame["division"]) == ["closed", "closed", "open", "closed"]
    assert set(frame["verified"]) == {NOT_VERIFIED}, "scores are computed here, of whomever the logs are"
    assert main(["results", str(tmp_path), "--entries", str(tmp_path / "entries.csv")]) == 2
    assert "--entries" in capsys.readouterr().err


def test_names_of_published_systems_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two entries may begin alike; of times to train, the longest published name has 35 letters."""
    system = "juwelsbooster_gpu_n1024_pytorch1.10"
    folder = make_folder(tmp_path / "v1.0" / "HelmholtzAI", "deepcam", random.Random(1))
    (tmp_path / "v1.0/HelmholtzAI/systems/box.json").rename(tmp_path / f"v1.0/HelmholtzAI/systems/{system}.json")
    folder = folder.parents[1].rename(folder.parents[2] / system) / "strong/deepcam"
    assert main(["results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(f" {system} ") >= 2, "among the runs and among the entries"
    main(["check", str(folder)])
    assert f" {system} " in capsys.readouterr().out
