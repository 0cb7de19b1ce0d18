"""How far batches are read ahead, which changes none of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.application import find_application
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.data import dali_loader
from hpcbench.data.dali_samples import has_dali, index_file
from hpcbench.data.loader import open_loader

COSMOFLOW = find_application("cosmoflow")
HOST = torch.device("cpu")
BATCHES = [np.array(numbers) for numbers in ([3, 1], [0, 2, 5], [4], [7, 6])]


def opened(root: Path, workers: int, **settings: str) -> Any:
    """The loader of the training set, with settings of ``data``."""
    overrides = {f"data.{key}": value for key, value in {**settings, "root": str(root)}.items()}
    config = resolve(COSMOFLOW, "smoke", [], overrides)
    return open_loader(COSMOFLOW, config, "train", COSMOFLOW.module("data").open_split(config, "train"), workers, HOST)


def equal(batches_read: Any, wanted: list[Any]) -> bool:
    """Whether both are the same batches in the same order."""
    both = [pair for batches in zip(batches_read, wanted, strict=True) for pair in zip(*batches, strict=True)]
    return all(torch.equal(*pair) for pair in both)


@pytest.mark.parametrize(("asked", "factor"), [
    ({}, 4), pytest.param({"prefetch": "1"}, 1, marks=pytest.mark.slow), ({"prefetch": "7"}, 7),
])  # fmt: skip
def test_each_reader_reads_so_many_batches_ahead(asked: dict[str, str], factor: int, cosmos: Path) -> None:
    both = [opened(cosmos, workers, **asked) for workers in (2, 0)]
    assert all(equal(each.load(BATCHES[:1]), opened(cosmos, 0).load(BATCHES[:1])) for each in both)
    assert (both[0]._loader.prefetch_factor, both[0]._loader.num_workers) == (factor, 2)
    assert both[1]._loader is None


def test_batches_do_not_depend_on_how_many_are_read_ahead(cosmos: Path) -> None:
    inline = list(opened(cosmos, 0).load(BATCHES))
    assert [len(inputs) for inputs, _ in inline] == [2, 3, 1, 2]
    assert all(equal(opened(cosmos, 1, prefetch=ahead).load(BATCHES), inline) for ahead in ("1", "4"))


class Recorded(Exception):  # noqa: N818
    """A pipeline was asked for."""


@pytest.mark.parametrize(("asked", "depth"), [({}, 2), ({"prefetch": "1"}, 1), ({"prefetch": "5"}, 5)])
def test_dalis_queue_is_so_deep(
    asked: dict[str, str], depth: int, cosmos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pipeline(**words: Any) -> None:
        raise Recorded(words["prefetch_queue_depth"])

    monkeypatch.setattr(dali_loader, "dali", lambda part: SimpleNamespace(Pipeline=pipeline))
    loader = opened(cosmos, 1, loader="dali", **asked)
    loader._described = SimpleNamespace(finish=None)
    with pytest.raises(Recorded) as found:
        next(loader.load(BATCHES))
    assert found.value.args == (depth,)


@pytest.mark.skipif(not has_dali(), reason='needs NVIDIA DALI (pip install "hpcbench-ml[dali]")')
@pytest.mark.parametrize("form", [("format", "npy"), ("compression", "none")])
def test_dali_gives_the_same_batches_whatever_its_queue(form: tuple[str, str], tmp_path: Path) -> None:
    size = ("--simulate.train_samples", "8", "--simulate.validation_samples", "1", "--processes", "1")
    made = ("--preset", "smoke", "--out", str(tmp_path), *size, f"--data.{form[0]}", form[1])
    assert main(["data", "simulate", "cosmoflow", *made]) == 0
    for path in tmp_path.glob("*/*.tfrecord"):
        index_file(path).write_text(f"0 {path.stat().st_size}\n")
    settings = dict([form])
    expected = list(opened(tmp_path, 0, **settings).load(BATCHES))
    for ahead in ("1", "4", "9"):
        assert equal(opened(tmp_path, 1, loader="dali", prefetch=ahead, **settings).load(BATCHES), expected)
