"""Slabs: each node stages the rows that its ranks need, and training is as on whole samples."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from apps.cosmoflow.config import Config as CosmoFlowConfig
from apps.cosmoflow.data import CosmoFlowDataset
from apps.cosmoflow.samples import write_sample
from apps.deepcam.config import Config as DeepCAMConfig
from apps.deepcam.data import ClimateSplit
from hpcbench.application import find_application
from hpcbench.config.resolve import resolve
from hpcbench.parallel.mesh_shape import MeshShape
from hpcbench.parallel.spatial.extents import Extent
from hpcbench.train.slab_staging import check_slabs, rows_of_node
from staging.errors import DataError, InputError
from staging.formats.npy import write_array

pytestmark = pytest.mark.usefixtures("forked_processes")

Train = Callable[..., int]
Start = Callable[..., "subprocess.Popen[str]"]
DOUBLE = ("--train.precision", "64-true", "--train.target", "1e-9", "--train.local_batch_size", "4")
SLABS = ("--staging.slabs", "true", "--staging.transform", "tfrecord-to-npy")


@pytest.mark.slow
def test_ranks_of_two_nodes_train_on_their_rows_as_one_process_on_whole_samples(
    train: Train, start: Start, tmp_path: Path
) -> None:
    common = (*DOUBLE, "--train.max_epochs", "1", "--data.augment", "false")
    assert train(tmp_path / "one", *common) == 3
    mesh = ("--parallel.devices", "4", "--parallel.spatial", "4", "--parallel.simulated_nodes", "2")
    process = start(tmp_path / "run", *common, *mesh, *SLABS, "--staging.destination", str(tmp_path / "{node}"))
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 3, said
    losses = [list(pd.read_csv(tmp_path / name / "steps.csv")["loss"]) for name in ("one", "run")]
    assert len(losses[0]) == 6
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    metrics = [list(pd.read_csv(tmp_path / name / "epochs.csv")["mae"]) for name in ("one", "run")]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-9)
    halves = [sorted(tmp_path.glob(f"*{node}/*/*_data.npy")) for node in (0, 1)]
    assert [len(half) for half in halves] == [34, 34]
    shapes = {np.load(path, mmap_mode="r").shape for half in halves for path in half}
    assert shapes == {(8, 16, 16, 4)}
    assert {np.load(path).shape for path in tmp_path.glob("*0/*/*_label.npy")} == {(4,)}


@pytest.mark.parametrize(
    ("spatial", "nodes", "rows"),
    [
        ((4,), (0, 0, 1, 1), [(0, 5), (5, 11)]),
        ((2,), (0, 1, 0, 1), [(0, 5), (5, 11)]),
        ((4,), (0, 0, 0, 1), [(0, 8), (8, 11)]),
        ((2,), (0, 0, 1, 1), [(0, 11), (0, 11)]),
        ((2, 2), (0, 0, 1, 1), [(0, 5), (5, 11)]),
        ((2, 2), (0, 1, 0, 1), [(0, 11), (0, 11)]),
        ((4,), (0, 1, 1, 0), [(0, 11), (2, 8)]),
    ],
)
def test_a_node_needs_the_rows_of_its_ranks(
    spatial: tuple[int, ...], nodes: tuple[int, ...], rows: list[tuple[int, int]]
) -> None:
    shape = MeshShape(1, spatial)
    assert [rows_of_node(shape, nodes, node, 11) for node in (0, 1)] == rows


def test_parts_are_those_of_whole_samples(tmp_path: Path) -> None:
    """Planes 3 to 8 of a universe are stored, and rows 2 to 7 of fields."""
    rng = np.random.default_rng(0)
    universe, config = CosmoFlowConfig(), DeepCAMConfig()
    universe.data.sample_size, universe.data.format = 10, "npy"
    counts, label = rng.integers(0, 9, (10, 10, 10, 4)).astype(np.int16), rng.random(4, np.float32)
    stored = Extent(3, 8)
    for name, kept in (("whole", counts), ("slab", counts[slice(*stored)])):
        write_sample(tmp_path / f"{name}_data.npy", kept, label, universe.data)
    part = {2: Extent(4, 7), 4: Extent(1, 5)}
    whole = CosmoFlowDataset(universe.data, [tmp_path / "whole_data.npy"]).part(part)[0]
    slab = CosmoFlowDataset(universe.data, [tmp_path / "slab_data.npy"]).part(part, stored)[0]
    assert whole[0].shape == (4, 3, 10, 4)
    assert all(one.equal(other) for one, other in zip(whole, slab, strict=True))

    config.data.height, config.data.width, config.data.format = 9, 6, "npy"
    fields, labels = rng.random((9, 6, 16), np.float32), rng.integers(0, 3, (9, 6)).astype(np.uint8)
    stored = Extent(2, 7)
    for name, rows in (("whole", fields), ("slab", fields[slice(*stored)])):
        write_array(tmp_path / f"data-{name}.npy", rows)
        write_array(tmp_path / f"label-{name}.npy", labels)
    part = {2: Extent(3, 7), 3: Extent(0, 4)}
    read = [ClimateSplit([tmp_path / f"data-{name}.npy"], config.data) for name in ("whole", "slab")]
    assert read[0].part(part)[0][0].shape == (16, 4, 4)
    assert read[0].part(part)[0][0].equal(read[1].part(part, stored)[0][0])
    broken = fields[slice(*stored)].copy()
    broken[3, 2, 0] = np.nan
    write_array(tmp_path / "data-slab.npy", broken)
    with pytest.raises(DataError, match="is nan at row 5, column 2"):
        read[1].part(part, stored)[0]


@pytest.mark.parametrize(
    ("name", "settings", "spatial", "words"),
    [
        ("cosmoflow", {}, (1, 2), r"and parallel.spatial \(1x2\) does not split it"),
        ("cosmoflow", {}, (2,), "leaves out planes of npy files, and data.format is tfrecord"),
        ("cosmoflow", {"staging.transform": "tfrecord-to-npy"}, (2,), "needs training samples that are prepared by"),
        ("deepcam", {}, (2,), "leaves out rows of npy files, and data.format is hdf5"),
    ],
)
def test_slabs_of_what_has_none_are_refused(
    name: str, settings: dict[str, Any], spatial: tuple[int, ...], words: str
) -> None:
    application = find_application(name)
    more = {"parallel.spatial": "x".join(map(str, spatial)), "staging.slabs": True, "staging.destination": "/there"}
    config = resolve(application, "smoke", overrides={**settings, **more})
    task = application.module("task").build_task(config)
    with pytest.raises(InputError, match=words) as caught:
        check_slabs(application, config, MeshShape(1, spatial), task)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"staging.destination": ""}, "staging.slabs needs staging.destination"),
        ({"staging.placement": "shard"}, "does not go with staging.placement shard; set it replicate"),
        ({"staging.overlap": True}, "does not go with staging.overlap True; set it False"),
        ({"data.loader": "dali"}, "does not go with data.loader dali; set it torch"),
    ],
)
def test_what_does_not_go_with_slabs(settings: dict[str, Any], words: str) -> None:
    more = {"parallel.spatial": "2", "staging.slabs": True, "staging.destination": "/there"}
    with pytest.raises(InputError, match=words):
        resolve(find_application("cosmoflow"), "smoke", overrides={**more, **settings})
