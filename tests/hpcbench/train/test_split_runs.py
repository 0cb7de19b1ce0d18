"""Runs whose samples are split over ranks: the same numbers as one process, on another mesh too, and bad input."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apps.cosmoflow.config import Config, CosmoFlowData
from apps.cosmoflow.data import open_split
from apps.cosmoflow.samples import SUFFIXES, read_sample, write_sample
from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.mlperf.compliance import check_log
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.results.run_folder import RunFolder
from hpcbench.train.check_mesh import check_mesh
from staging.errors import InputError

pytestmark = pytest.mark.usefixtures("forked_processes")

Start = Callable[..., "subprocess.Popen[str]"]
Train = Callable[..., int]
SHORT = ("--train.target", "1e-9", "--train.max_epochs", "2")
DOUBLE = (*SHORT, "--train.precision", "64-true", "--train.local_batch_size")


def finished(process: subprocess.Popen[str], code: int = 3) -> str:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == code, said
    return said


def losses(folder: Path) -> list[float]:
    return list(pd.read_csv(folder / "steps.csv")["loss"])


def logged(folder: Path, key: str) -> Any:
    lines = [json.loads(line.split(":::MLLOG ")[1]) for line in (folder / "mllog.txt").read_text().splitlines()]
    return next(line["value"] for line in lines if line["key"] == key)


def as_npy(source: Path, root: Path, samples: int) -> Path:
    """The first samples of both splits of a set of TFRecords, as npy."""
    config = Config()
    config.data.root, config.data.sample_size = str(source), 16
    for split in ("train", "validation"):
        (root / split).mkdir(parents=True)
        for path in open_split(config, split).files[:samples]:
            counts, label = read_sample(path, config.data)
            write_sample(root / split / f"{path.stem}{SUFFIXES['npy']}", counts, label, CosmoFlowData(format="npy"))
    return root


@pytest.fixture(scope="module")
def alone(cosmos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process, batch 4, three epochs."""
    from .conftest import arguments

    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(arguments(cosmos, folder, *DOUBLE, "4", "--train.max_epochs", "3")) == 3
    return folder


@pytest.mark.slow
def test_four_ranks_as_two_by_two_are_one_process_and_go_on_as_another_mesh(
    alone: Path, start: Start, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    finished(start(folder, *DOUBLE, "2", "--parallel.devices", "4", "--parallel.spatial", "2"))
    assert losses(folder) == pytest.approx(losses(alone)[: len(losses(folder))], rel=1e-9)
    assert logged(folder, "data_parallel") == 2
    assert logged(folder, "spatial_parallel") == 2
    assert logged(folder, "spatial_split") == [2]
    assert logged(folder, "global_batch_size") == 4
    summary, other = RunFolder.open(folder).read_summary(), RunFolder.open(alone).read_summary()
    assert (summary.spatial, summary.world_size, summary.global_batch_size) == ("2", 4, 4)
    assert summary.flops_forward_per_sample == other.flops_forward_per_sample
    assert summary.parameters == other.parameters

    more = ("--resume", "--train.max_epochs", "3", "--parallel.devices", "2")
    said = finished(start(folder, *more, "--parallel.spatial", "1x2"), 2)
    assert "cannot resume: the checkpoint was made with global batch size 4, this run has 2" in said
    said = finished(start(folder, *more, "--parallel.spatial", "1x2", "--train.local_batch_size", "4"))
    assert "continues as 1 x (1x2) ranks (data x spatial)" in said
    assert len(losses(folder)) == len(losses(alone)) == 18
    assert losses(folder) == pytest.approx(losses(alone), rel=1e-9)
    metrics = [list(pd.read_csv(each / "epochs.csv")["mae"]) for each in (folder, alone)]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-9)


@pytest.mark.slow
def test_ranks_that_read_their_parts_are_one_process_that_reads_whole_samples(cosmos: Path, tmp_path: Path) -> None:
    """Of npy, and without augmentation, ranks read parts in training; elsewhere they cut them from whole samples."""
    from .conftest import arguments, start

    root = as_npy(cosmos, tmp_path / "npy", samples=8)
    settings = (*DOUBLE, "4", "--train.max_epochs", "1", "--data.format", "npy", "--data.augment", "false")
    assert main(arguments(root, tmp_path / "alone", *settings)) == 3
    finished(start(root, tmp_path / "run", *settings, "--parallel.devices", "2", "--parallel.spatial", "2"))
    runs = tmp_path / "run", tmp_path / "alone"
    assert len(losses(runs[0])) == 2
    assert losses(runs[0]) == pytest.approx(losses(runs[1]), rel=1e-9)
    metrics = [list(pd.read_csv(each / "epochs.csv")["mae"]) for each in runs]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-9)
    with np.load(runs[0] / "examples.npz") as pictures, np.load(runs[1] / "examples.npz") as same:
        assert pictures["slice"].shape[1:] == (4, 16, 16)
        assert np.array_equal(pictures["slice"], same["slice"])


@pytest.mark.slow
def test_the_noise_scale_counts_each_sample_once(train: Train, start: Start, tmp_path: Path) -> None:
    """Two groups of two ranks, real and simulated, have two parts of a step, as one process with two micro-batches."""
    asked = (*DOUBLE, "2", "--train.max_epochs", "1", "--train.noise_scale_every", "1")
    assert train(tmp_path / "one", *asked, "--train.accumulation", "2") == 3
    finished(start(tmp_path / "split", *asked, "--parallel.devices", "4", "--parallel.spatial", "2"))
    turns = ("--parallel.devices", "2", "--parallel.spatial", "2", "--parallel.simulated_ranks", "2")
    finished(start(tmp_path / "turns", *asked, *turns))
    one, split, simulated = (RunFolder.open(tmp_path / name).read_noise_scale() for name in ("one", "split", "turns"))
    assert len(one) == 6
    assert set(split["small_batch"]) == {2}
    np.testing.assert_allclose(split, one, rtol=1e-9)
    np.testing.assert_allclose(simulated, one, rtol=1e-9)
    assert losses(tmp_path / "turns") == pytest.approx(losses(tmp_path / "one"), rel=1e-9)


@pytest.mark.slow
def test_groups_train_on_the_shard_of_their_node(start: Start, tmp_path: Path) -> None:
    """Two ranks that share samples on each of two nodes are as one rank on each."""
    settings = (*DOUBLE, "4", "--train.max_epochs", "1", "--staging.placement", "shard")
    for name, ranks, spatial in (("whole", "2", "1"), ("split", "4", "2")):
        mesh = ("--parallel.devices", ranks, "--parallel.spatial", spatial, "--parallel.simulated_nodes", "2")
        staged = ("--staging.destination", str(tmp_path / name / "{node}"))
        finished(start(tmp_path / f"{name}-run", *settings, *mesh, *staged))
    whole, split = (losses(tmp_path / f"{name}-run") for name in ("whole", "split"))
    assert len(whole) == 3
    assert split == pytest.approx(whole, rel=1e-9)


@pytest.mark.slow
@pytest.mark.mpi
def test_a_staged_run_of_two_by_two_under_mpiexec_meets_its_target(mpiexec: str, start: Start, tmp_path: Path) -> None:
    """And its log passes the official checker, but for the target, which is its own."""
    settings = ("--parallel.spatial", "2", "--staging.destination", str(tmp_path / "node"), "--train.target", "0.95")
    said = finished(start(tmp_path / "run", *settings, before=(mpiexec, "-n", "4")), 0)
    assert "4 ranks as 2 x 2 (data x spatial)" in said
    summary = RunFolder.open(tmp_path / "run").read_summary()
    assert (summary.status, summary.world_size, summary.spatial) == ("success", 4, "2")
    assert summary.phases_s["staging"] > 0
    assert logged(tmp_path / "run", "number_of_ranks") == 4
    found = check_log(tmp_path / "run" / "mllog.txt", "open")
    assert (found.ok, found.official) == (False, "own target"), found.messages


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("--parallel.spatial", "3"), "splits a sample over 3 ranks, which must divide the 2 ranks of the run"),
        (("--parallel.spatial", "two"), "parallel.spatial (two) must be a number of ranks such as 4"),
        (
            (
                "--parallel.spatial",
                "2",
                "--parallel.simulated_nodes",
                "2",
                "--staging.placement",
                "shard",
                "--staging.destination",
                "{node}",
            ),
            "staging.placement shard: ranks 0 to 1 share samples (parallel.spatial) but not a node; start a multiple",
        ),
    ],
)
def test_what_cannot_be_split_is_one_line(settings: tuple[str, ...], words: str, start: Start, tmp_path: Path) -> None:
    said = finished(start(tmp_path / "run", "--parallel.devices", "2", *settings), 2)
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "spatial", "words"),
    [
        ("cosmoflow", (10,), "over 10 ranks, of which each must have a part of the first block's 8 planes"),
        ("cosmoflow", (2, 9), "split it over at most 8"),
        ("deepcam", (4,), "has an output of size 3 in dimension 1 of a sample, fewer than the 4 ranks"),
        ("deepcam", (1, 5), "fewer than the 5 ranks that it is split over; split over at most 4"),
        ("deepcam", (1, 1, 2), "(1x1x2) splits a sample along three axes, and a sample has two dimensions"),
    ],
)
def test_a_split_finer_than_the_data_is_refused_before_anything_is_written(
    name: str, spatial: tuple[int, ...], words: str
) -> None:
    application = find_application(name)
    config = resolve(application, "smoke", overrides={"parallel.spatial": "x".join(map(str, spatial))})
    with pytest.raises(InputError) as caught:
        check_mesh(application, config, MeshShape(1, spatial), 0)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
