"""Two processes draw what one does."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.testing.compare import compare_images

from hpcbench.analysis.analysis import Analysis, Question, analyze
from hpcbench.analysis.save_figures import save_figures
from hpcbench.analysis.write_analysis import figures
from tests.hpcbench.analysis.made_runs import run


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    runs = [run(number, 100.0 + number, system=system, epochs=4.0 + number) for number in range(3) for system in "ab"]
    return analyze(runs, [], Question())


@pytest.mark.slow
def test_a_forked_process_draws_the_same(analysis: Analysis, tmp_path: Path) -> None:
    alone, both = tmp_path / "alone", tmp_path / "both"
    found = []
    for folder, forking in ((alone, False), (both, True)):
        folder.mkdir()
        found.append(save_figures(figures(analysis)[:3], folder, forking))
    assert found[0] == found[1]
    names = sorted(path.name for path in alone.iterdir())
    assert names == sorted(path.name for path in both.iterdir())
    assert len(names) == 6
    for name in names:
        if name.endswith("png"):
            assert compare_images(str(alone / name), str(both / name), tol=0) is None


def test_what_the_other_process_could_not_write_is_written(
    analysis: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forked process has this one's functions: it fails, and leaves its half to this one."""
    import os

    from hpcbench.analysis import save_figures as module

    here, save_each = os.getpid(), module.save_each

    def failing(*words: object) -> None:
        if os.getpid() != here:
            os._exit(1)
        save_each(*words)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "save_each", failing)
    assert len(module.save_figures(figures(analysis)[:2], tmp_path, forking=True)) == 2
    assert len(list(tmp_path.iterdir())) == 4
