"""`hpcbench app shapes`: the module that it writes gives the shapes of the dataset's batches."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpcbench.application import Application
from hpcbench.cli import app as app_command
from hpcbench.cli.main import main
from hpcbench.config.resolve import resolve
from hpcbench.data.loader import BatchReader
from hpcbench.skeleton.shapes_file import as_source, write_shapes_file
from hpcbench.train.build import open_data
from hpcbench.train.warm_up import whole_batch
from staging.errors import InputError

DATA = """
import torch

class Samples:
    def __len__(self):
        return 5
    def __getitem__(self, index):
        return torch.zeros(3, 4, 6, dtype=torch.float16), index

def open_split(config, split):
    return Samples()
"""
TASK = """
from hpcbench.train.task import Task

class Own(Task):
    def prepare(self, inputs, targets, generator):
        return inputs.float(), targets
    def loss(self, output, target):
        raise AssertionError("nothing is trained")
    score = loss

def build_task(config):
    return Own()
"""


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    """An application without ``shapes``, in a package of its own."""
    package = tmp_path / "bare_of_shapes"
    (package / "configs").mkdir(parents=True)
    (package / "configs" / "smoke.yaml").touch()
    for name, text in (("__init__", ""), ("data", DATA), ("task", TASK)):
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield Application("bare", "Nothing", "bare", "bare_of_shapes")
    for name in [each for each in sys.modules if each.partition(".")[0] == "bare_of_shapes"]:
        del sys.modules[name]


def test_the_file_gives_the_shapes_of_a_batch_after_the_task_prepared_it(
    bare: Application, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(app_command, "find_application", lambda name: bare)
    assert main(["app", "shapes", "bare", "--data.root", "anywhere"]) == 0
    path = bare.folder() / "shapes.py"
    assert capsys.readouterr().out == f"wrote {path}\n"
    importlib.invalidate_caches()
    assert bare.has("shapes")
    inputs, targets = bare.module("shapes").batch_shapes(None, 7)
    assert (inputs.shape, inputs.dtype, inputs.device.type) == ((7, 3, 4, 6), torch.float32, "meta")
    assert (targets.shape, targets.dtype, targets.device.type) == ((7,), torch.int64, "meta")


def test_made_up_batches_are_like_those_that_are_read(bare: Application) -> None:
    """By them a run compiles before its clock: code is compiled for shapes, types and layouts."""
    config = resolve(bare, "smoke", overrides={"data.root": "anywhere"})
    write_shapes_file(bare, config)
    importlib.invalidate_caches()
    made = whole_batch(bare, config, 4, torch.device("cpu"))
    training, _ = open_data(bare, config)
    read = bare.module("task").build_task(config).prepare(*BatchReader(training).read(np.arange(4)), None)
    assert [(each.shape, each.dtype, each.stride()) for each in made] == [
        (each.shape, each.dtype, each.stride()) for each in read
    ]


def test_a_file_that_is_there_stays(bare: Application) -> None:
    (bare.folder() / "shapes.py").write_text("mine", encoding="utf-8")
    importlib.invalidate_caches()
    with pytest.raises(InputError, match=r"bare has a module 'shapes' already \(.*shapes\.py\); remove it"):
        write_shapes_file(bare, resolve(bare, "smoke", overrides={"data.root": "anywhere"}))
    assert (bare.folder() / "shapes.py").read_text(encoding="utf-8") == "mine"


def test_without_a_dataset_it_says_what_to_set(bare: Application) -> None:
    with pytest.raises(InputError, match=r"bare has no module 'shapes'.*; set --data\.root DIR"):
        write_shapes_file(bare, resolve(bare, "smoke"))
    assert not (bare.folder() / "shapes.py").exists()


def test_a_folder_that_cannot_be_written_is_named(bare: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    config = resolve(bare, "smoke", overrides={"data.root": "anywhere"})

    def refuse(path: Path, mode: str, **options: Any) -> None:
        raise OSError(30, f"Read-only file system for {path.name}")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        InputError, match=r"shapes\.py: cannot write there \(Read-only file system for shapes\.py\); .*--editable"
    ):
        write_shapes_file(bare, config)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_layout_in_memory_is_kept(layout: torch.memory_format) -> None:
    batch = torch.empty(1, 3, 4, 6, device="meta", memory_format=layout)
    made: torch.Tensor = eval(as_source(batch), {"torch": torch, "samples": 2})
    assert (made.shape, made.is_contiguous(memory_format=layout)) == ((2, 3, 4, 6), True)
    assert made.is_contiguous() == (layout is torch.contiguous_format)
