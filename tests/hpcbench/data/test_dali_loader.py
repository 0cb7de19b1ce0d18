"""The DALI loader gives the batches of the torch loader: samples, labels, layout and order; bad input is one line."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from apps.cosmoflow.samples import write_sample
from hpcbench.application import Application, find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.config.schema import RunConfig
from hpcbench.data import dali_loader, dali_samples
from hpcbench.data.dali_loader import BATCHES_BEHIND, DaliLoader, check_dali, describe
from hpcbench.data.dali_samples import has_dali, index_file
from hpcbench.data.loader import BatchLoader, open_loader
from hpcbench.data.sampler import epoch_order, rank_batches, rank_share
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.build import open_data
from staging.errors import DataError, InputError
from staging.formats.example import encode_example
from staging.formats.tfrecord import write_records

needs_dali = pytest.mark.skipif(not has_dali(), reason='needs NVIDIA DALI (pip install "hpcbench-ml[dali]")')

SETS = {
    "cosmoflow-tfrecord": ("cosmoflow", {"data.compression": "none"}),
    "cosmoflow-npy": ("cosmoflow", {"data.format": "npy"}),
    "deepcam-npy": ("deepcam", {"data.format": "npy"}),
}
TRAINING, VALIDATION = 13, 5


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of each form that DALI reads, by name."""
    made = {}
    for name, (app, settings) in SETS.items():
        made[name] = tmp_path_factory.mktemp("data") / name
        simulate(app, made[name], settings)
    for path in made["cosmoflow-tfrecord"].glob("*/*.tfrecord"):
        index_file(path).write_text(f"0 {path.stat().st_size}\n")
    return made


def simulate(app: str, root: Path, settings: dict[str, str]) -> None:
    words = [word for key, value in settings.items() for word in (f"--{key}", value)]
    sizes = ["--simulate.train_samples", str(TRAINING), "--simulate.validation_samples", str(VALIDATION)]
    assert (
        main(["data", "simulate", app, "--preset", "smoke", "--out", str(root), "--processes", "1", *sizes, *words])
        == 0
    )


def configured(name: str, root: Path, **more: str) -> tuple[Application, RunConfig]:
    app, settings = SETS[name]
    application = find_application(app)
    common = {"data.root": str(root), "data.loader": "dali"}
    return application, resolve(application, "smoke", [], {**settings, **common, **more})


def same(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
    return all(
        torch.equal(a, b) and a.dtype == b.dtype and a.shape == b.shape and (not len(a) or a.stride() == b.stride())
        for a, b in zip(one, other, strict=True)
    )


@needs_dali
@pytest.mark.parametrize("last_batch", ["keep", "drop"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", SETS)
def test_both_loaders_give_the_same_samples_labels_and_order(
    name: str, ranks: int, last_batch: str, roots: dict[str, Path]
) -> None:
    application, config = configured(name, roots[name])
    training, validation = open_data(application, config)
    host = torch.device("cpu")
    for rank in range(ranks):
        dali = open_loader(application, config, "train", training, 2, host)
        assert isinstance(dali, DaliLoader)
        for epoch in (1, 2, 3):
            batches = rank_batches(epoch_order(TRAINING, 7, epoch), rank, ranks, 3, last_batch)
            expected, got = list(BatchLoader(training, 0, pin=False).load(batches)), list(dali.load(batches))
            assert len(got) == len(batches)
            assert all(same(one, other) for one, other in zip(got, expected, strict=True))
        share = rank_share(len(validation), rank, ranks)
        batches = [share[:2], share[2:]]
        got = list(open_loader(application, config, "validation", validation, 0, host).load(batches))
        expected = list(BatchLoader(validation, 0, pin=False).load(batches))
        assert all(same(one, other) for one, other in zip(got, expected, strict=True))


@needs_dali
@pytest.mark.parametrize("name", SETS)
def test_batches_of_any_sizes_and_none(name: str, roots: dict[str, Path]) -> None:
    application, config = configured(name, roots[name])
    training, _ = open_data(application, config)
    loader = open_loader(application, config, "train", training, 2, torch.device("cpu"))
    batches = [np.array(some, dtype=np.int64) for some in ([3], [], [7, 7, 0, 12], [5, 1], [])]
    expected, got = list(BatchLoader(training, 0, pin=False).load(batches)), list(loader.load(batches))
    assert [len(inputs) for inputs, _ in got] == [1, 0, 4, 2, 0]
    assert all(same(one, other) for one, other in zip(got, expected, strict=True))
    assert list(loader.load([])) == []
    # an epoch that is given up leaves the next one whole
    abandoned = loader.load(batches)
    assert same(next(abandoned), expected[0])
    assert all(same(one, other) for one, other in zip(loader.load(batches), expected, strict=True))


@needs_dali
def test_chosen_channels(roots: dict[str, Path]) -> None:
    application, config = configured("deepcam-npy", roots["deepcam-npy"], **{"data.channels": "[4, 0, 9]"})
    training, _ = open_data(application, config)
    batches = [np.array([2, 0])]
    got = next(open_loader(application, config, "train", training, 2, torch.device("cpu")).load(batches))
    expected = next(BatchLoader(training, 0, pin=False).load(batches))
    assert got[0].shape == (2, 3, 48, 64)
    assert torch.equal(got[0], expected[0])


@pytest.mark.slow
@needs_dali
@pytest.mark.parametrize("name", ["cosmoflow-tfrecord", "deepcam-npy"])
def test_training_with_dali_has_exactly_the_losses_of_the_torch_loader(
    name: str, roots: dict[str, Path], tmp_path: Path
) -> None:
    app, settings = SETS[name]
    words = [word for key, value in settings.items() for word in (f"--{key}", value)]
    fixed = ["--train.precision", "32-true", "--parallel.threads", "1", "--parallel.accelerator", "cpu", "--seed", "5",
             "--train.baselines", "false", "--train.target", "null", "--train.max_epochs", "2",
             "--train.local_batch_size", "4", "--data.root", str(roots[name])]  # fmt: skip
    tables, scores = [], []
    for loader in ("torch", "dali"):
        folder = tmp_path / loader
        choice = ["--data.loader", loader, "--run-dir", str(folder)]
        assert main(["train", app, "--preset", "smoke", *words, *fixed, *choice]) == 0
        tables.append(RunFolder.open(folder).read_steps())
        scores.append(RunFolder.open(folder).read_summary().metrics)
    assert len(tables[0]) == 8
    assert list(tables[0]["samples"]) == [4, 8, 12, 13, 17, 21, 25, 26]
    assert list(tables[1]["loss"]) == list(tables[0]["loss"])
    assert scores[1] == scores[0]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def spoil(path: Path, value: float) -> None:
    array = np.load(path)
    array.flat[0] = value
    np.save(path, array)


BAD = {
    "cut npy": ("deepcam-npy", "train/data-*.npy", cut, "holds .* bytes"),
    "gone": ("deepcam-npy", "train/label-*.npy", Path.unlink, "cannot be read"),
    "of another shape": ("cosmoflow-npy", "train/*_data.npy", lambda path: np.save(path, np.zeros((8,) * 4, "i2")),
                         "has shape"),
    "of another type": ("cosmoflow-npy", "train/*_label.npy", lambda path: np.save(path, np.zeros(4)), "float64"),
    "not a number": ("deepcam-npy", "train/data-*.npy", lambda path: spoil(path, np.nan), "TMQ is nan at row 0"),
    "negative count": ("cosmoflow-npy", "train/*_data.npy", lambda path: spoil(path, -3), "-3"),
    "no class": ("deepcam-npy", "train/label-*.npy", lambda path: spoil(path, 3), "label 3 at row 0"),
    "cut TFRecord": ("cosmoflow-tfrecord", "train/*.tfrecord", cut, "cut short"),
    "no TFRecord": ("cosmoflow-tfrecord", "train/*.tfrecord", lambda path: path.write_bytes(bytes(32834)), "damaged"),
    "without feature": ("cosmoflow-tfrecord", "train/*.tfrecord", lambda path: record(path, {"x": bytes(32768)}),
                        "no feature 'y'"),
    "short feature": ("cosmoflow-tfrecord", "train/*.tfrecord",
                      lambda path: record(path, {"x": bytes(24), "y": np.zeros(4, "f4")}), "has 24 bytes"),
}  # fmt: skip


def record(path: Path, features: dict[str, object]) -> None:
    write_records(path, [encode_example(features)], "none")  # type: ignore[arg-type]
    index_file(path).write_text(f"0 {path.stat().st_size}\n")


@pytest.mark.slow
@needs_dali
@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_is_named_in_one_line(what: str, tmp_path: Path) -> None:
    name, pattern, break_it, said = BAD[what]
    app, settings = SETS[name]
    simulate(app, tmp_path / "data", settings)
    for path in (tmp_path / "data").glob("*/*.tfrecord"):
        index_file(path).write_text(f"0 {path.stat().st_size}\n")
    application, config = configured(name, tmp_path / "data")
    training, _ = open_data(application, config)
    bad = sorted((tmp_path / "data").glob(pattern))[6]
    break_it(bad)
    loader = open_loader(application, config, "train", training, 2, torch.device("cpu"))
    with pytest.raises(DataError, match=said) as caught:
        list(loader.load(rank_batches(np.arange(TRAINING), 0, 1, 2, "keep")))
    assert bad.name in str(caught.value)
    assert "\n" not in str(caught.value)


class Events:
    """Events of a device; how many were made after those that the host waited for."""

    def __init__(self) -> None:
        self.made = 0
        self.waited: list[int] = []

    def make(self, device: torch.device) -> Event:
        self.made += 1
        return Event(self)


class Event:
    def __init__(self, events: Events) -> None:
        self.events = events

    def record(self) -> None:
        self.number = self.events.made

    def synchronize(self) -> None:
        self.events.waited.append(self.events.made - self.number)


@needs_dali
@pytest.mark.parametrize(("bad", "waited"), [
    (0, [BATCHES_BEHIND]),
    (TRAINING - 1, [BATCHES_BEHIND] * (TRAINING - BATCHES_BEHIND) + list(range(BATCHES_BEHIND))[::-1]),
])  # fmt: skip
def test_a_negative_count_is_found_on_a_device_without_waiting_for_its_newest_batches(
    bad: int, waited: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate("cosmoflow", tmp_path / "data", SETS["cosmoflow-npy"][1])
    application, config = configured("cosmoflow-npy", tmp_path / "data", **{"data.apply_log": "false"})
    training, _ = open_data(application, config)
    path = sorted((tmp_path / "data").glob("train/*_data.npy"))[bad]
    spoil(path, -30000)
    events = Events()
    monkeypatch.setattr(torch, "Event", events.make)
    loader = open_loader(application, config, "train", training, 2, torch.device("cpu"))
    assert isinstance(loader, DaliLoader)
    loader.behind = BATCHES_BEHIND
    with pytest.raises(DataError, match="-30000") as caught:
        list(loader.load([np.array([index]) for index in range(TRAINING)]))
    assert path.name in str(caught.value)
    assert events.waited == waited


@needs_dali
def test_what_only_dali_cannot_read_is_one_line(roots: dict[str, Path]) -> None:
    application, config = configured("cosmoflow-npy", roots["cosmoflow-npy"])
    described = describe(application, config, "train")
    fine = [(torch.zeros(1), torch.zeros(1))] * TRAINING
    no_array = roots["cosmoflow-npy"] / "simulated.json"
    loader = DaliLoader(fine, lambda: replace(described, targets_file=lambda path: no_array), 1)
    with pytest.raises(InputError, match=r"DALI cannot read .*\.npy and what follows \(.*bad magic") as caught:
        list(loader.load([np.array([4, 5])]))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("; try --data.loader torch")


def test_the_device_decides_where_batches_arrive() -> None:
    made = DaliLoader(None, lambda: pytest.fail("described too early"), 0, torch.device("cuda", 1))
    assert (made.device, made.threads) == (torch.device("cuda", 1), 1)
    assert DaliLoader(None, lambda: pytest.fail("described too early"), 3, torch.device("meta")).device.type == "cpu"


def test_without_dali_one_line_and_nothing_is_written(
    roots: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dali_samples, "find_spec", lambda name: None)
    words = ["train", "cosmoflow", "--preset", "smoke", "--data.loader", "dali", "--data.compression", "none"]
    root = str(roots["cosmoflow-tfrecord"])
    assert main([*words, "--data.root", root, "--run-dir", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.endswith(
        'data.loader dali needs NVIDIA DALI; pip install "hpcbench-ml[dali]", or use --data.loader torch\n'
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("app", "settings", "said"), [
    ("cosmoflow", {"data.compression": "gzip"}, r"data.compression \(gzip\) .*gunzip\+tfrecord-index"),
    ("cosmoflow", {"data.format": "hdf5"}, r"data.format \(hdf5\) .*--data.format npy"),
    ("deepcam", {"data.format": "hdf5"}, r"data.format \(hdf5\) .*--data.format npy"),
])  # fmt: skip
def test_forms_that_dali_cannot_read(
    app: str, settings: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dali_loader, "has_dali", lambda: True)
    application = find_application(app)
    config = resolve(application, "smoke", [], {**settings, "data.root": "/nowhere", "data.loader": "dali"})
    with pytest.raises(InputError, match=said):
        check_dali(application, config)


def test_an_application_that_does_not_say_how(monkeypatch: pytest.MonkeyPatch, roots: dict[str, Path]) -> None:
    monkeypatch.setattr(dali_loader, "has_dali", lambda: True)
    application, config = configured("cosmoflow-npy", roots["cosmoflow-npy"])
    monkeypatch.delattr(application.module("data"), "dali_samples")
    with pytest.raises(InputError, match=r"add dali_samples\(config, split\) to apps.cosmoflow.data"):
        check_dali(application, config)


@needs_dali
@pytest.mark.parametrize("name", SETS)
def test_a_link_to_a_pipe_is_refused_and_not_waited_for(name: str, roots: dict[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "set"
    shutil.copytree(roots[name], root)
    application, config = configured(name, root)
    training, _ = open_data(application, config)
    os.mkfifo(tmp_path / "pipe")
    training.files[4].unlink()
    training.files[4].symlink_to(tmp_path / "pipe")
    loader = open_loader(application, config, "train", training, 1, torch.device("cpu"))
    with pytest.raises(DataError, match=f"{re.escape(str(training.files[4]))}: is a pipe, not a file"):
        list(loader.load([np.array([1, 2]), np.array([3, 4])]))


@needs_dali
@pytest.mark.parametrize(("label", "count", "said"), [
    (np.nan, 1, r"label \[0\.0, nan, 0\.0, 0\.0\] is not within"),
    (3, 1, r"label \[0\.0, 3\.0, 0\.0, 0\.0\] is not within"),
    (-3, 1, r"label \[0\.0, -3\.0, 0\.0, 0\.0\] is not within"),
    (1, -30000, "holds a count of -30000"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["cosmoflow-tfrecord", "cosmoflow-npy"])
def test_a_label_or_a_count_out_of_range_is_named(
    name: str, label: float, count: int, said: str, roots: dict[str, Path], tmp_path: Path
) -> None:
    root = tmp_path / "set"
    shutil.copytree(roots[name], root)
    application, config = configured(name, root)
    training, _ = open_data(application, config)
    path = training.files[3]
    counts = training[3][0].permute(1, 2, 3, 0).numpy()
    counts[5, 4, 3, 2] = count
    write_sample(path, counts, np.array([0, label, 0, 0], np.float32), config.data)
    loader = open_loader(application, config, "train", training, 1, torch.device("cpu"))
    with pytest.raises(DataError, match=f"{re.escape(str(path.parent))}.*{said}"):
        list(loader.load([np.array([1, 2]), np.array([3, 4])]))
