"""``hpcbench analyze``: the page, plots and tables that it writes, a golden table, and bad input."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.results.not_verified import NOT_VERIFIED
from tests.hpcbench.mlperf.test_read_log import COSMOFLOW, DEEPCAM, WITHIN_EPOCHS, in_round
from tests.hpcbench.submission.conftest import build

GOLDEN = """\
place,entry,source,division,accelerators,batch,runs,kept,minutes,models_per_min,epochs,epoch_s,rate,staging_share,\
compares,differences,verified
1,v1.0 ORG nvidia,v1.0 closed ORG,closed,2048,2048,1,1,1.6363,,23,3.3004,18.444,,base,,
2,v0.7 Fujitsu abci,v0.7 closed Fujitsu,closed,1024,2048,1,1,11.901,,24,23.067,5.3757,0.20558,yes,,
"""
"""Of one log each, to five digits. By their lines run_start and run_stop the runs took 98.181 and 714.052 s."""


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A DeepCAM run of v1.0 and one of v0.7, which compare."""
    in_round(tmp_path, DEEPCAM, "nvidia")
    folder = tmp_path / "v0.7" / "Fujitsu" / "results" / "abci" / "deepcam"
    folder.mkdir(parents=True)
    shutil.copy(WITHIN_EPOCHS, folder / "result_1.txt")
    description = folder.parents[2] / "systems" / "abci.json"
    description.parent.mkdir()
    description.write_text('{"number_of_nodes": 256, "accelerators_per_node": 4, "accelerator_model_name": "V100"}')
    return tmp_path


@pytest.fixture
def own_run(tmp_path: Path) -> Path:
    """A run folder whose log is that of a published run."""
    folder = tmp_path / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("{}\n")
    shutil.copy(DEEPCAM, folder / "mllog.txt")
    return folder


def rounded(text: str) -> str:
    """Numbers of a CSV text to five digits."""
    return re.sub(r"(?<=,)-?\d+\.\d+(?=,|\n)", lambda found: f"{float(found[0]):.5g}", text)


def test_page_plots_and_tables(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = published / "out"
    assert main(["analyze", str(published), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert "takes 7.27 times as long as" in shown
    assert NOT_VERIFIED not in shown
    ranking = (out / "tables" / "deepcam-time-to-train-ranking.csv").read_text()
    assert rounded(ranking) == GOLDEN
    (pair,) = (row for row in rows_of(out, "pairs") if row["a"] == "v0.7 Fujitsu abci")
    product = 1.0
    for name in ("epochs", "samples", "accelerators", "rate", "evaluation", "first", "staging", "rest"):
        product *= float(pair[name])
    assert product == pytest.approx(float(pair["ratio"]), rel=1e-12)
    page = (out / "analysis.html").read_text()
    assert NOT_VERIFIED not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    drawn = {path.name for path in (out / "figures").iterdir()}
    names = {"deepcam-time-to-train-decomposition", "deepcam-time-to-train-waterfall", "staging", "convergence"}
    assert {f"{name}.{suffix}" for name in names for suffix in ("png", "svg")} <= drawn
    for sheet in (out / "tables").iterdir():
        if sheet.name != "pairs.csv":
            assert f"tables/{sheet.name}" in page


def rows_of(out: Path, name: str) -> list[dict[str, str]]:
    """The rows of a table."""
    with (out / "tables" / f"{name}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.slow
def test_own_results_are_not_verified(published: Path, own_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the screen, the page, every plot with them and every table."""
    out = published / "out"
    words = ["analyze", str(own_run), str(published / "v1.0"), "--machine", "polaris", "--out", str(out)]
    assert main(words) == 0
    assert f"Entries of no round: {NOT_VERIFIED}." in capsys.readouterr().out
    page = (out / "analysis.html").read_text()
    assert page.count(NOT_VERIFIED) > 5
    slug = "deepcam-time-to-train"
    for name in (f"{slug}-decomposition", f"{slug}-waterfall", "staging", "convergence", "compute"):
        assert NOT_VERIFIED in (out / "figures" / f"{name}.svg").read_text(), name
    for name in ("deepcam-time-to-train-ranking", "pairs", "staging", "epochs", "compute"):
        assert any(row["verified"] == NOT_VERIFIED for row in rows_of(out, name)), name
    (mine,) = (row for row in rows_of(out, "compute") if row["entry"].startswith("own"))
    assert mine["machine"].startswith("Polaris")
    assert "font-weight" in page
    assert Path(out / "figures" / "tiers.svg").exists()


@pytest.mark.slow
def test_a_packaged_submission_is_your_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though it lies in the folder of a round, as the official tools want it."""
    runs = [build(tmp_path / "runs" / f"r{number}", seed=100 + number, minutes=10 + number, start_min=30 * number)
            for number in range(10)]  # fmt: skip
    words = ["package", "LAB", *map(str, runs), "--system", "box", "--out", str(tmp_path / "v3.0")]
    assert main(words) in (0, 1)
    capsys.readouterr()
    entries = tmp_path / "entries.csv"
    words = ["results", str(tmp_path / "v3.0"), "--out", str(tmp_path / "runs.csv"), "--entries", str(entries)]
    assert main(words) == 0
    with entries.open(newline="") as lines:
        assert [(row["origin"], row["round"]) for row in csv.DictReader(lines)] == [("submission", "v3.0")]
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines()[2:3]] == [["submission", "box"]]
    assert "v3.0 closed  LAB" in shown, "it is an entry all the same"
    with (tmp_path / "runs.csv").open(newline="") as lines:
        assert {(row["origin"], row["verified"]) for row in csv.DictReader(lines)} == {("submission", NOT_VERIFIED)}
    in_round(tmp_path / "published", COSMOFLOW, "dgx")
    out = tmp_path / "out"
    assert main(["analyze", str(tmp_path / "v3.0"), str(tmp_path / "published"), "--out", str(out)]) == 0
    assert f"Entries of no round: {NOT_VERIFIED}." in capsys.readouterr().out
    assert NOT_VERIFIED in (out / "analysis.html").read_text()
    slug = "cosmoflow-time-to-train"
    assert NOT_VERIFIED in (out / "figures" / f"{slug}-decomposition.svg").read_text()
    rows = {row["entry"]: row for row in rows_of(out, f"{slug}-ranking")}
    mine = rows["submission LAB box"]
    assert (mine["source"], mine["verified"], mine["kept"]) == ("submission", NOT_VERIFIED, "8")
    assert "one is of no published round" in {row["compares"] for row in rows.values()} | {
        row["differences"] for row in rows.values()
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--base", "nvidi_a"], "--base nvidi_a: no entry has this name; did you mean 'nvidia'?"),
        (["--against", "zzz"], "--against zzz: no entry has this name; known: v0.7 Fujitsu abci, abci, v1.0 ORG"),
        (["--base", "abci", "--against", "abci"], "--base and --against are both v0.7 Fujitsu abci; give two entries"),
        (["--application", "deepcan"], "--application deepcan: no run is of it; did you mean 'deepcam'?"),
        (["--machine", "polari"], "unknown machine 'polari'; did you mean 'polaris'?"),
        (["--out", "."], "--out . exists; remove it, or give another name"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_one_line(
    published: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(published), "--out", str(published / "out"), *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not (published / "out").exists()


def test_a_pair_needs_one_benchmark(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    in_round(published, COSMOFLOW, "cosmos")
    words = ["analyze", str(published), "--out", str(published / "out"), "--base", "cosmos", "--against", "abci"]
    assert main(words) == 2
    assert (
        "v1.0 ORG cosmos is CosmoFlow, time to train, and v0.7 Fujitsu abci is DeepCAM, time to train; "
        "a pair needs one benchmark and mode" in capsys.readouterr().err
    )


def test_one_entry_is_nothing_to_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = in_round(tmp_path, DEEPCAM, "alone")
    assert main(["analyze", str(log), "--out", str(tmp_path / "out")]) == 2
    assert "nothing to compare: 1 entry (v1.0 ORG alone (DeepCAM)); give another" in capsys.readouterr().err
    in_round(tmp_path, COSMOFLOW, "alone")
    assert main(["analyze", str(tmp_path / "v1.0"), "--out", str(tmp_path / "out")]) == 2
    assert "nothing to compare: 2 entries of different benchmarks" in capsys.readouterr().err


def test_what_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert main(["analyze", *out]) == 2
    assert "give run folders, logs, or folders of a round, or --published" in capsys.readouterr().err
    assert main(["analyze", str(tmp_path), *out]) == 2
    assert "holds no run" in capsys.readouterr().err
    text = tmp_path / "notes.txt"
    text.write_text("no log\n")
    assert main(["analyze", str(text), *out]) == 2
    assert "holds no line of an official log" in capsys.readouterr().err
    log = in_round(tmp_path, DEEPCAM, "cut")
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:40]))
    assert main(["analyze", str(log), *out]) == 2
    assert "no entry has a time to compare; of v1.0 ORG cut: the log ends before run_stop" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (published / "file").write_text("")
    assert main(["analyze", str(published), "--out", str(published / "file" / "out")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_entry_of_several_batches_is_left_out_with_its_reason(
    published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = in_round(published, DEEPCAM, "mixed")
    text = DEEPCAM.read_text().replace('"global_batch_size", "value": 2048', '"global_batch_size", "value": 1024')
    mixed.with_name("result_2.txt").write_text(text)
    why = "its runs differ in global batch (1,024, 2,048); give runs of one setup"
    assert main(["analyze", str(mixed.parent), "--out", str(published / "none")]) == 2
    said = capsys.readouterr().err
    assert f"no entry has a time to compare; of v1.0 ORG mixed: {why}" in said
    assert said.count("\n") == 1
    assert main(["analyze", str(published), "--out", str(published / "out")]) == 0
    assert f"v1.0 ORG mixed (DeepCAM) is left out: {why}." in " ".join(capsys.readouterr().out.split())
    assert why in (published / "out" / "analysis.html").read_text()


@pytest.mark.slow
def test_notes_on_own_runs_are_on_the_screen_too(
    published: Path, own_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Simulated nodes head no ranking without a word."""
    text = (own_run / "mllog.txt").read_text()
    lines = text.splitlines()
    (own_run / "mllog.txt").write_text("\n".join([*lines[:5], lines[5][:-9], *lines[6:]]) + "\n")
    assert main(["analyze", str(own_run), str(published / "v1.0"), "--out", str(published / "out")]) == 0
    assert "(DeepCAM): 1 line cannot be read, the first: " in " ".join(capsys.readouterr().out.split())
