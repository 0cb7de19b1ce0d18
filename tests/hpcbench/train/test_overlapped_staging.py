"""The first epoch while files arrive: what a run that staged before would compute, whatever the form and placement."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from apps.cosmoflow.data import CosmoFlowDataset
from hpcbench.cli.main import main
from hpcbench.config.schema import RunConfig
from hpcbench.data.bad_samples import blame, file_of_sample
from hpcbench.data.loader import stack
from hpcbench.data.sampler import Shards
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.background_staging import ArrivingSamples, BackgroundStaging
from hpcbench.train.node_shard import NodeShard
from hpcbench.train.overlapped_staging import files_of_samples, open_ahead, order_of_shards
from hpcbench.train.shard_staging import foresee_shards
from staging.errors import DataError, InputError
from staging.ledger.journal import Journal
from staging.ledger.jsonl import read_lines
from staging.ledger.manifest import manifest_path
from staging.ranks.world import Alone
from staging.source.sources import FileReader
from tests.hpcbench.train.conftest import FAST, arguments
from tests.params import slow_except

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
TOLERANCE = 1e-12
FIXED = ("--train.precision", "64-true", "--model.dropout", "0.5", "--data.augment", "--train.target", "1e-9")
ONE_BY_ONE = ("--staging.overlap", "--staging.threads", "1")


def losses(folder: Path) -> list[float]:
    return [float(loss) for loss in RunFolder.open(folder).read_steps()["loss"]]


class Files(list[Any]):
    """Samples, each in a file of its own."""

    files = (Path("/set/a"), Path("/set/b"))


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of the source take a while, so that the epoch has to wait."""
    read = FileReader.read_into

    def read_late(self: FileReader, *words: Any) -> None:
        time.sleep(0.03)
        read(self, *words)

    monkeypatch.setattr(FileReader, "read_into", read_late)


@pytest.mark.slow
@pytest.mark.parametrize(
    "transform", slow_except(["gunzip+tfrecord-index"], ["", "gunzip+tfrecord-index", "tfrecord-to-npy"])
)
def test_data_that_arrive_under_the_first_epoch_train_the_same(
    train: Train, tmp_path: Path, transform: str, late: None
) -> None:
    common = (*FIXED, "--data.train_samples", "23", "--train.max_epochs", "2", "--staging.transform", transform)
    assert train(tmp_path / "before", *common, "--staging.destination", str(tmp_path / "first")) == 3
    staged = ("--staging.destination", str(tmp_path / "second"), *ONE_BY_ONE)
    assert train(tmp_path / "under", *common, *staged) == 3
    assert losses(tmp_path / "under") == losses(tmp_path / "before")
    report = json.loads((tmp_path / "under" / "staging.json").read_text())
    assert report["files"] == (66 if transform.endswith(("index", "npy")) else 33)
    assert report["exposed_s"] > 0.5
    summary = RunFolder.open(tmp_path / "under").read_summary()
    assert summary.phases_s["staging"] == pytest.approx(report["exposed_s"], abs=0.2)
    assert sum(summary.phases_s.values()) == pytest.approx(summary.wall_s, rel=0.01)
    log = (tmp_path / "under" / "mllog.txt").read_text()
    keys = ("staging_start", "epoch_start", "staging_stop", "epoch_stop")
    assert sorted(keys, key=log.index) == list(keys)


def test_a_shard_that_arrives_is_recorded_as_complete_and_nothing_else(
    train: Train, tmp_path: Path, late: None
) -> None:
    """Its samples get loaders of their own while it is on its way."""
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap", "--staging.placement", "shard")
    assert train(tmp_path / "run", *staged, "--train.max_epochs", "1") == 0
    lines = read_lines(Journal(tmp_path / "local").path)
    assert [line["outcome"] for line in lines if line.get("event") == "end"] == ["done"]


def flipped(self: CosmoFlowDataset, samples: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """A collate function that changes the order of the parameters."""
    inputs, targets = zip(*samples, strict=True)
    return stack(list(inputs)), torch.stack(targets).flip(1)


@pytest.mark.slow
def test_an_application_makes_the_batches_of_data_that_arrive_as_it_makes_others(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = (*FIXED, "--data.train_samples", "8", "--data.validation_samples", "2", "--train.max_epochs", "1")
    monkeypatch.setattr(CosmoFlowDataset, "collate", flipped, raising=False)
    assert train(tmp_path / "before", *few) == 3
    assert train(tmp_path / "under", *few, "--staging.destination", str(tmp_path / "local"), *ONE_BY_ONE) == 3
    assert losses(tmp_path / "under") == losses(tmp_path / "before")


class Landed(SimpleNamespace):
    """A staging that has ended."""

    def have_landed(self, paths: list[Path]) -> bool:
        return True


def test_samples_that_arrive_are_blamed_and_checked_as_others() -> None:
    class Checked(list[tuple[torch.Tensor, torch.Tensor]]):
        def file_of(self, index: int) -> str:
            return f"all.h5, row {index}"

        def check(self, index: int) -> None:
            if index == 1:
                raise DataError(self.file_of(index), "holds only zeros", "look")

    pairs = [(torch.tensor([value]), torch.zeros(1)) for value in (float("nan"), 0.0)]
    samples = ArrivingSamples(Checked(pairs), [[], []], cast("BackgroundStaging", Landed()))
    assert str(blame(samples, [0])).startswith("all.h5, row 0: input nan")
    assert blame(samples, [1]) == "all.h5, row 1: holds only zeros; look"
    few = ArrivingSamples(Files(pairs), [[], []], cast("BackgroundStaging", Landed()))
    assert file_of_sample(few, 1) == "/set/b"


@pytest.mark.slow
def test_deepcam_trains_on_arrays_that_arrive(tmp_path: Path, late: None) -> None:
    size = ("--data.height", "96", "--data.width", "144")
    few = ("--simulate.train_samples", "6", "--simulate.validation_samples", "2")
    data = str(tmp_path / "data")
    made = ["data", "simulate", "deepcam", "--preset", "smoke", "--out", data, "--processes", "1", *size, *few]
    assert main(made) == 0
    for name, more in (("before", ()), ("under", ONE_BY_ONE)):
        words = ["train", "deepcam", "--preset", "smoke", "--data.root", data, "--run-dir", str(tmp_path / name), *FAST]
        staged = ("--staging.destination", str(tmp_path / "local" / name), "--staging.transform", "hdf5-to-npy")
        fixed = ("--train.max_epochs", "1", "--train.target", "1", "--train.local_batch_size", "2")
        assert main([*words, *size, *fixed, *staged, *more]) == 3
    assert losses(tmp_path / "under") == losses(tmp_path / "before")


@pytest.mark.slow
def test_what_an_unfinished_staging_left_is_not_read(train: Train, tmp_path: Path, late: None) -> None:
    assert train(tmp_path / "before", *FIXED, "--train.max_epochs", "1") == 3
    staged = ("--staging.destination", str(tmp_path / "local"), *ONE_BY_ONE)
    assert train(tmp_path / "once", *FIXED, "--train.max_epochs", "1", *staged) == 3
    manifest = manifest_path(tmp_path / "local")
    manifest.write_text(manifest.read_text().split("\n", 1)[0] + "\n")
    for path in (tmp_path / "local" / "train").iterdir():
        path.write_bytes(b"not what it says")
    assert train(tmp_path / "under", *FIXED, "--train.max_epochs", "1", *staged) == 3
    assert losses(tmp_path / "under") == losses(tmp_path / "before")


PROGRAM = """
import sys, time
from hpcbench.cli.main import main
from staging.errors import DataError
from staging.source.sources import FileReader
from hpcbench.parallel.staging_world import GroupWorld
read, made, reads = FileReader.read_into, GroupWorld.__init__, []

def init(self, *words, **more):
    made(self, *words, **more)
    reads.append(self.place.rank)

def read_into(self, *words):
    time.sleep(0.01)
    reads.append(None)
    if FAIL and len(reads) > 12:
        if reads[0] == 1:
            raise DataError("train/x", "vanished from the source")
        time.sleep(600)
    read(self, *words)

GroupWorld.__init__, FileReader.read_into = init, read_into
sys.exit(main(sys.argv[1:]))
"""
"""Trains with a slow source. With FAIL, after a few files, rank 1 finds one gone, and that of rank 0 says no more."""


def ranks(data: Path, folder: Path, *settings: str, fail: bool = False) -> tuple[int, str]:
    """Train on two ranks, each a node of its own."""
    words = arguments(data, folder, *settings, "--parallel.simulated_nodes", "2")
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
    command = [*launch, sys.executable, "-c", PROGRAM.replace("FAIL", str(fail)), *words]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=500)
    return done.returncode, done.stderr


SHARDS = ("--staging.placement", "shard", "--staging.reshuffle", "true")


@pytest.mark.slow
@pytest.mark.parametrize(
    "placement",
    [
        (*SHARDS, "--staging.path", "exchange", "--staging.transform", "tfrecord-to-npy"),
        SHARDS,
        ("--staging.path", "exchange", "--staging.transform", "gunzip"),
    ],
)
def test_two_nodes_train_on_what_arrives_as_on_what_has_arrived(
    cosmos: Path, tmp_path: Path, placement: tuple[str, ...]
) -> None:
    common = (*FIXED, *placement, "--data.train_samples", "23", "--train.local_batch_size", "3")
    common = (*common, "--train.max_epochs", "3")
    for name, more in (("before", ()), ("under", ONE_BY_ONE)):
        where = ("--staging.destination", str(tmp_path / name / "{node}"))
        code, said = ranks(cosmos, tmp_path / f"run-{name}", *common, *where, *more)
        assert "exitcode  : 3" in said, (code, said)
    before, under = (losses(tmp_path / f"run-{name}") for name in ("before", "under"))
    np.testing.assert_allclose(under, before, rtol=TOLERANCE)
    one, two = (RunFolder.open(tmp_path / f"run-{name}").read_summary() for name in ("before", "under"))
    assert two.metrics == pytest.approx(one.metrics, rel=TOLERANCE)
    assert (two.samples, one.samples) == (69, 69)
    staged = json.loads((tmp_path / "run-under" / "staging.json").read_text())
    assert staged["exposed_s"] > 0
    for name in ("before", "under"):
        log = [line.split(" ", 1)[1] for line in (tmp_path / f"run-{name}" / "mllog.txt").read_text().splitlines()]
        assert sum(json.loads(line)["key"] == "opt_base_learning_rate" for line in log) == 1


@pytest.mark.slow
def test_a_staging_that_fails_while_others_compute_ends_all_ranks_with_one_message(
    cosmos: Path, tmp_path: Path
) -> None:
    where = ("--staging.destination", str(tmp_path / "{node}"), *ONE_BY_ONE, "--train.local_batch_size", "1")
    code, said = ranks(cosmos, tmp_path / "run", *FIXED, *where, fail=True)  # in less time than rank 0 stands still
    assert code != 0
    assert said.count("train/x: vanished from the source") == 1
    assert 'Traceback (most recent call last):\n  File "<string>"' not in said
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert (summary.status, "rank 1" in summary.reason) == ("aborted", True)


def test_a_source_that_fails_under_the_first_epoch_ends_the_run(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def vanished(self: FileReader, *words: Any) -> None:
        raise DataError("train/x", "vanished from the source")

    monkeypatch.setattr(FileReader, "read_into", vanished)
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap")
    assert train(tmp_path / "run", *staged) == 2
    assert "train/x: vanished from the source" in capsys.readouterr().err
    assert RunFolder.open(tmp_path / "run").read_summary().status == "aborted"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("--staging.timed", "false"), "staging.overlap stages inside the scored time; set staging.timed true"),
        (("--data.loader", "dali"), "staging.overlap does not go with data.loader dali, which opens all files"),
        (("--staging.destination", ""), "staging.overlap needs staging.destination"),
    ],
)
def test_what_cannot_overlap_is_refused(
    train: Train, tmp_path: Path, settings: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    staged = ("--staging.destination", str(tmp_path / "local"), "--staging.overlap")
    assert train(tmp_path / "run", *staged, *settings) == 2
    assert words in capsys.readouterr().err
    assert not any((tmp_path / name).exists() for name in ("local", "run"))


def application(open_split: Callable[..., Any], files: list[Path]) -> Any:
    """One whose samples are opened so, and are in these files."""
    data = SimpleNamespace(open_split=open_split, files_of_split=lambda *_: files)
    return SimpleNamespace(name="toy", module=lambda _: data)


def test_an_application_that_needs_the_files_themselves_is_refused(tmp_path: Path) -> None:
    config = RunConfig()
    config.data.root = str(tmp_path / "none")
    toy = application(lambda config, split: sorted((Path(config.data.root) / split).iterdir()), [])
    with pytest.raises(InputError, match=r"toy cannot list samples that are yet to come \(.*No such file") as found:
        open_ahead(toy, config, ["train/a"])
    assert "set staging.overlap false" in str(found.value)


@pytest.mark.parametrize("ends", ["", "_data.npy _label.npy"])
def test_the_files_of_samples_are_found_by_name_whatever_the_order_of_the_list(ends: str) -> None:
    """The default list is sorted by whole names, and samples by those without their ends."""
    config = RunConfig()
    config.data.root = "/set"
    parts = [[f"{number}{end}" for end in ends.split(" ")] for number in (1, 10, 2)]
    toy = application(lambda *_: None, [Path("/set") / name for name in sorted(chain(*parts))])
    samples = Files([1, 2, 3])
    samples.files = [Path("/set") / part[0] for part in parts]
    assert files_of_samples(toy, config, samples) == parts


@pytest.mark.parametrize("files", [["a", "b", "c"], ["b", "c"], ["a", "a"]])
def test_an_application_that_does_not_say_which_files_a_sample_is_in_is_refused(files: list[str]) -> None:
    config = RunConfig()
    config.data.root = "/set"
    toy = application(lambda *_: None, [Path("/set") / name for name in files])

    with pytest.raises(InputError, match=r"staging\.overlap: toy does not say which files a sample is in"):
        files_of_samples(toy, config, Files([1, 2]))


def test_shards_that_a_plan_foresees_decide_the_steps_that_are_logged() -> None:
    logged: list[int] = []

    class Data(SimpleNamespace):
        def assign_homes(self, shards: Any) -> None:
            self.shards = shards
            self.steps_per_epoch = -(-int(np.bincount(self.shards.home).max()) // 2)

    shard = NodeShard.__new__(NodeShard)
    shard.numbers, shard.world, shard.together = {"train/c": 0, "train/a": 1, "train/b": 2}, Alone(), 1
    names = ["stats", "train/a", "train/b", "train/c"]
    plan = SimpleNamespace(home=np.array([-1, 1, 0, 0], np.int32))
    places = [SimpleNamespace(node=node) for node in (0, 1)]
    prepared = SimpleNamespace(listing=SimpleNamespace(names=names), plan=plan, places=places)
    log, task = SimpleNamespace(hyperparameters=lambda keys: None), SimpleNamespace(log_keys=logged.append)
    run: Any = SimpleNamespace(config=RunConfig(), task=task, log=log)
    data: Any = Data(node_shard=shard)
    foresee_shards(run, data, prepared, 0)
    assert (data.shards.home.tolist(), data.shards.node, logged) == ([0, 1, 0], (0, 1), [1])
    run.config.staging.reshuffle = True
    foresee_shards(run, data, prepared, 2)
    assert logged == [1], "a resumed run has logged the steps of its first epoch"


def test_shards_arrive_by_turns_each_in_the_order_of_its_node() -> None:
    shards = Shards(np.array([0, 1, 0, 0, 1]), (0, 1))
    order = list(order_of_shards(shards, 7, 1))
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert [shards.home[number] for number in order] == [0, 1, 0, 1, 0]
