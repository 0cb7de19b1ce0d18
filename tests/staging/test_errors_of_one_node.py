"""An error that only one node has, between two gathers, ends all ranks with its own words."""

from __future__ import annotations

from pathlib import Path

import pytest

from staging.errors import DataError, InputError
from staging.options import StageOptions
from staging.reshuffle import reshuffle
from staging.storage.destination_folder import DestinationFolder
from tests.staging.processes import make_tree
from tests.staging.staged_by_threads import stage_all
from tests.staging.thread_world import run_ranks


def test_a_node_that_cannot_make_ready_for_a_reshuffle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: DestinationFolder) -> None:
        if folder.path.name == "node1":
            raise DataError(folder.path, "is a link", "remove it")

    make_tree(tmp_path / "source", 8)
    options = StageOptions(tmp_path / "source", str(tmp_path / "{node}"), "shard")
    stage_all([1, 1], options)
    monkeypatch.setattr("staging.reshuffle.clear_arrivals", refuse)
    with pytest.raises(InputError, match=f"^node1: {tmp_path}/node1: is a link; remove it"):
        run_ranks([1, 1], lambda world: reshuffle(options, 1, world))
