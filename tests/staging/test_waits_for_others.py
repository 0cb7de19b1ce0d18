"""A rank that waits for a slower one at the end of its move counts the time as waiting, and not as moving."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from staging.options import Path_ as MovePath
from staging.options import StageOptions
from staging.stage import Staging
from tests.staging.processes import make_tree
from tests.staging.staged_by_threads import stage_all

SLOW_S = 1.0


@pytest.mark.slow
@pytest.mark.parametrize("path", ["direct", "exchange"])
@pytest.mark.parametrize("slow", [0, 1])
def test_waiting_at_the_end_of_a_move_is_not_moving(
    path: MovePath, slow: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = Staging.move

    def move_slowly(staging: Staging, landings: object) -> None:
        move(staging, landings)  # type: ignore[arg-type]
        if staging.world.place.rank == slow:
            time.sleep(SLOW_S)

    monkeypatch.setattr(Staging, "move", move_slowly)
    make_tree(tmp_path / "source", 12)
    found = stage_all([1, 1], StageOptions(tmp_path / "source", str(tmp_path / "{node}"), path=path))
    late, early = found.ranks[slow].phases_s, found.ranks[1 - slow].phases_s
    assert late["move"] >= SLOW_S
    assert early["wait"] >= 0.9 * SLOW_S > late["wait"]
    assert early["move"] <= late["move"] - 0.9 * SLOW_S
