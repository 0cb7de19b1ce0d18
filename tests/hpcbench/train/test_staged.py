"""Runs that stage their data: the same numbers as without, whatever the form."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from hpcbench.cli.main import main
from hpcbench.results.run_folder import RunFolder
from hpcbench.study.scaling.run_figures import read_staging
from tests.hpcbench.train.conftest import arguments
from tests.hpcbench.train.rank_processes import RankProcesses
from tests.staging.spoiled import spoil

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]


def steps(folder: Path) -> pd.DataFrame:
    return RunFolder.open(folder).read_steps()


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["gunzip", "tfrecord-to-npy"])
def test_data_transformed_on_the_way_train_the_same(train: Train, tmp_path: Path, transform: str) -> None:
    assert train(tmp_path / "direct", "--train.max_epochs", "1") == 0
    staged = ("--staging.destination", str(tmp_path / "{node}"), "--staging.transform", transform)
    assert train(tmp_path / "staged", "--train.max_epochs", "1", *staged) == 0
    assert (steps(tmp_path / "direct")["loss"] == steps(tmp_path / "staged")["loss"]).all()
    report = json.loads((tmp_path / "staged" / "staging.json").read_text())
    assert report["bytes_landed"] > 2 * report["bytes_read"]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["direct", "exchange"])
def test_a_file_that_grows_beyond_a_sample_ends_the_staging(
    cosmos: Path, tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, local = tmp_path / "data", tmp_path / "local"
    shutil.copytree(cosmos, data)
    grown = max((data / "train").iterdir())
    grown.write_bytes(gzip.compress(bytes(1 << 26)))
    staged = ("--staging.destination", str(local), "--staging.transform", "gunzip", "--staging.path", path)
    assert main(arguments(data, tmp_path / "run", *staged)) == 2
    largest = 2 * 8 * 16**3 * 4 + (1 << 16)
    assert f"train/{grown.name}: grows beyond {largest} bytes, the most that" in capsys.readouterr().err
    assert all(each.stat().st_size <= largest for each in local.rglob("*") if each.is_file())


@pytest.mark.parametrize(
    ("transform", "words"),
    [("gunzp", "transform 'gunzp' is not known"), ("hdf5-to-npy", "cosmoflow cannot read what staging.transform")],
)
def test_a_transform_that_leads_nowhere_is_refused_first(
    train: Train, tmp_path: Path, transform: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.transform", transform)
    assert train(tmp_path / "run", *staged) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "local").exists()


@pytest.mark.parametrize(
    ("destination", "index", "problem"),
    [
        ("pipe", "", "pipe: is not a folder; choose another destination"),
        ("x" * 300, "", "cannot be looked at (File name too long); choose another destination"),
        ("/proc/nope", "", "/proc/nope: cannot be made, since /proc takes no files; choose another destination"),
        ("plain/below", "", "plain is not a folder; choose another destination"),
        ("source", "", "is the source itself; choose a destination outside the source"),
        ("{name}", "", "holds '{name}'; the fields are {node} and {rank}"),
        ("local", "pipe", "pipe: is a pipe, not a file; remove it"),
        ("local", "gone", "gone: no such index; make one with `hpcbench data index`"),
        ("local", ".", "cannot be read (Is a directory); check the file and its permissions"),
        ("local", "plain", "plain: is not a dataset index; name a file that `hpcbench data index` made"),
    ],
)
def test_places_that_no_staging_can_use_are_refused_first(
    destination: str, index: str, problem: str, cosmos: Path, train: Train, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").touch()
    (tmp_path / "source").symlink_to(cosmos)
    staged = ("--staging.destination", str(tmp_path / destination))
    staged += ("--staging.index", str(tmp_path / index)) if index else ()
    before = sorted(tmp_path.iterdir())
    assert train(tmp_path / "run", *staged) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert err.endswith(f"{problem}\n")
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_that_two_ranks_cannot_use_is_one_line(start: Callable[..., RankProcesses], tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    ranks = start(tmp_path / "run", "--parallel.devices", "2", "--staging.destination", str(tmp_path / "plain"))
    said, _ = ranks.communicate()
    assert ranks.returncode == 2
    assert said == f"hpcbench: error: {tmp_path}/plain: is not a folder; choose another destination\n"
    assert not (tmp_path / "run").exists()


def test_staged_data_train_the_same(train: Train, tmp_path: Path) -> None:
    assert train(tmp_path / "direct", "--train.max_epochs", "1") == 0
    staged = tmp_path / "local"
    assert train(tmp_path / "staged", "--train.max_epochs", "1", "--staging.destination", str(staged)) == 0
    assert (steps(tmp_path / "direct")["loss"] == steps(tmp_path / "staged")["loss"]).all()
    report = json.loads((tmp_path / "staged" / "staging.json").read_text())
    assert report["files"] == 34
    assert report["bytes_landed"] == sum(path.stat().st_size for path in staged.rglob("*.tfrecord"))
    assert RunFolder.open(tmp_path / "staged").read_summary().phases_s["staging"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [(), ("--staging.overlap", "true", "--train.local_batch_size", "2")], ids=["", "overlap"]
)
def test_a_run_repairs_what_an_earlier_one_brought(train: Train, tmp_path: Path, more: tuple[str, ...]) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.transform", "gunzip", *more)
    assert train(tmp_path / "first", "--train.max_epochs", "1", *staged) == 0
    bad = spoil(tmp_path / "local")
    assert train(tmp_path / "again", "--train.max_epochs", "1", *staged, "--staging.repair", "true") == 0
    report = json.loads((tmp_path / "again" / "staging.json").read_text())
    assert sorted(file["name"] for file in report["repaired"]) == bad
    assert report["files"] == 3
    assert (steps(tmp_path / "first")["loss"] == steps(tmp_path / "again")["loss"]).all()


def test_a_resumed_run_keeps_the_report_of_the_staging_whose_files_it_finds(train: Train, tmp_path: Path) -> None:
    folder, staged = RunFolder(tmp_path / "run"), ("--staging.destination", str(tmp_path / "local"))
    assert train(folder.path, "--train.max_epochs", "1", *staged) == 0
    first = folder.staging.read_text()
    for epochs in ("2", "3"):
        assert train(folder.path, "--resume", "--train.max_epochs", epochs) == 0
    assert [path.name for path in folder.staging_reports()] == [
        "staging-part1.json", "staging-part2.json", "staging.json",
    ]  # fmt: skip
    assert (folder.path / "staging-part1.json").read_text() == first
    landed = [json.loads(path.read_text())["files"] for path in folder.staging_reports()]
    assert landed == [34, 0, 0]
    report = read_staging(folder)
    assert report is not None
    assert (report["files"], report["bytes_per_s"] > 0) == (34, True)


PLACED = {
    "replicate": (1, ["--staging.transform", "gunzip"]),
    "shard": (1, ["--staging.placement", "shard", "--staging.reshuffle", "true"]),
    "shards of two nodes": (2, ["--staging.placement", "shard"]),
    "slabs": (2, ["--staging.slabs", "true", "--staging.transform", "tfrecord-to-npy", "--parallel.spatial", "2",
                  "--data.augment", "false"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("how", PLACED)
def test_stage_only_stages_what_a_run_would(cosmos: Path, tmp_path: Path, how: str) -> None:
    ranks, settings = PLACED[how]
    words = arguments(cosmos, tmp_path / "run", *settings, "--staging.destination", str(tmp_path / "local/{node}"),
                      "--train.max_epochs", "1")  # fmt: skip
    words += ["--parallel.simulated_nodes", str(ranks)] if ranks > 1 else []
    processes = RankProcesses(ranks, [[*words, "--stage-only"], words])
    said, _ = processes.communicate()
    assert processes.returncode == 0, said
    each = 68 if how == "slabs" else 34
    assert len([path for path in (tmp_path / "local").rglob("*") if path.suffix in (".tfrecord", ".npy")]) >= each
    report = json.loads((tmp_path / "run/staging.json").read_text())
    assert (report["files"], report["bytes_landed"]) == (0, 0)


def test_stage_only_leaves_no_run(train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.transform", "gunzip")
    assert train(tmp_path / "run", *staged, "--stage-only") == 0
    assert "34 files in" in capsys.readouterr().out
    assert len(list((tmp_path / "local").rglob("*.tfrecord"))) == 34
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ([], "--stage-only needs --staging.destination DIR"),
        (["--staging.destination", "{out}", "--staging.placement", "shard", "--train.seed", "null"],
         "--stage-only needs --seed N for shards, which only a run of the same seed takes"),
        (["--staging.destination", "{out}", "--staging.slabs", "true"],
         "staging.slabs brings each node its rows of samples that are split in their first dimension"),
    ],
)  # fmt: skip
def test_stage_only_refuses_what_a_run_would_not_take(
    settings: list[str], problem: str, cosmos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = arguments(cosmos, tmp_path / "run", *(word.format(out=tmp_path / "out") for word in settings))
    if "--train.seed" in words:
        at = words.index("--seed")
        words[at : at + 2] = []
    assert main([*words, "--stage-only"]) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
