"""A gains study of real runs, as a user makes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcbench.cli.main import main
from hpcbench.study.folder import StudyFolder
from hpcbench.study.gains.results import read_results
from hpcbench.study.gains.study import read_statuses, read_study

pytestmark = pytest.mark.usefixtures("forked_processes")


@pytest.mark.slow
def test_real_runs_train_on_equal_samples_and_overlap_changes_no_bit(small_cosmos: Path, tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "study")
    words = ["--data.root", str(small_cosmos), "--steps", "6", "--repeats", "1", "--only", "bf16,overlap-4-forward"]
    assert main(["study", "gains", "cosmoflow", "--study-dir", str(folder.path), *words]) == 0
    study = read_study(folder)
    statuses = read_statuses(study, folder)
    summaries = [state.summary for state in statuses.values() if state.summary is not None]
    assert len(summaries) == 3
    assert {each.samples for each in summaries} == {6 * 8}
    precisions = {name: state.summary.precision for name, state in statuses.items() if state.summary is not None}
    assert precisions == {"baseline-r1": "32-true", "bf16-r1": "bf16-mixed", "overlap-4-forward-r1": "32-true"}
    found = read_results(study, folder, statuses)
    assert [each.same_training for each in found.options] == [False, True]
    assert all(each.middle("step_s") for each in found.options)
    assert "<svg" not in (folder.path / "gains.html").read_text(encoding="utf-8")  # one repeat has no interval
