"""Files that a killed staging did not finish do not come back after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from staging.ledger.journal import Journal
from staging.options import StageOptions
from staging.ranks.world import Alone
from staging.stage import stage
from tests.staging.begun import begin
from tests.staging.processes import make_tree, unfinished


def test_unfinished_files_are_gone_for_good_where_nothing_is_to_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path / "source", 20)
    options = StageOptions(tmp_path / "source", str(tmp_path / "out"))
    stage(options, Alone(), quiet=True)
    begin(Journal(tmp_path / "out"), "killed", Alone().place, "")
    (tmp_path / "out" / ".file.0123456789ab.part").touch()
    at_sync: list[list[str]] = []
    monkeypatch.setattr("staging.stage.sync_filesystem", lambda folder, *_: at_sync.append(unfinished(folder)))
    assert stage(options, Alone(), quiet=True).totals.files_landed == 0
    assert at_sync == [[]]
