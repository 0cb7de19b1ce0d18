"""A run that continues: all ranks from one checkpoint, or none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from hpcbench.config.schema import RunConfig
from hpcbench.train.checkpoint_times import CheckpointTimes
from hpcbench.train.setup import run_folder_of
from staging.errors import InputError

T = TypeVar("T")


class TwoRanks:
    """Rank 0 of two, the other of which sees ``other`` as the newest checkpoint."""

    def __init__(self, other: str) -> None:
        self.launch = SimpleNamespace(rank=0)
        self.group = SimpleNamespace(all_gather_object=lambda own: [own, other], broadcast_object=lambda own: own)

    def together(self, step: Callable[[], T]) -> T:
        return step()


def open_run(path: Path, other: str, *, resume: bool) -> Any:
    application: Any = SimpleNamespace(name="cosmoflow")
    ranks: Any = TwoRanks(other)
    return run_folder_of(application, RunConfig(), ranks, path, CheckpointTimes(), resume=resume, again=True)


def test_ranks_that_see_different_checkpoints_end_before_anything_is_touched(tmp_path: Path) -> None:
    """As with a run folder on each node, or with an old view of a network filesystem: they waited for each other."""
    run = tmp_path / "run"
    name = "epoch-0001-step-00000008.pt"
    with pytest.raises(InputError, match=rf"no checkpoint on rank 0 and {name} on rank 1; give a --run-dir on"):
        open_run(run, name, resume=False)
    assert not run.exists()
    (run / "checkpoints").mkdir(parents=True)
    for file in (name, name.replace(".pt", ".json")):
        (run / "checkpoints" / file).touch()
    with pytest.raises(InputError, match=rf"{name} on rank 0 and no checkpoint on rank 1"):
        open_run(run, "", resume=True)
    with pytest.raises(InputError, match="is not a complete run folder"):
        open_run(run, name, resume=True)
    assert open_run(tmp_path / "new", "", resume=False)[0].path == tmp_path / "new"
