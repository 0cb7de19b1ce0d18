"""The share of lines that the default tests cover."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.covered_lines import compared, main


def test_lines_that_no_test_covers_do_not_count() -> None:
    default = {"hpcbench/a.py": {1, 2, 3}, "hpcbench/b.py": {1}}
    slow = {"hpcbench/a.py": {3, 4}, "hpcbench/b.py": set(), "hpcbench/c.py": {7, 8}}
    assert compared(default, slow) == [("hpcbench/c.py", 0, 2), ("hpcbench/a.py", 3, 4), ("hpcbench/b.py", 1, 1)]


@pytest.mark.parametrize(("ours", "code"), [(95, 0), (85, 1)])
def test_files_of_coverage(ours: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coverage = pytest.importorskip("coverage", reason="coverage is not installed; it comes with the extra dev")
    module = tmp_path / "site-packages" / "hpcbench" / "study" / "fit.py"
    module.parent.mkdir(parents=True)
    for folder in (module.parent, module.parent.parent):
        (folder / "__init__.py").touch()
    files = {"default": range(1, ours + 1), "slow": range(1, 101)}
    for name, lines in files.items():
        data = coverage.CoverageData(str(tmp_path / name))
        data.add_lines({str(module): lines, str(tmp_path / "conftest.py"): [1]})
        data.write()
    assert main([str(tmp_path / name) for name in files]) == code
    assert f"{ours} of 100 lines that any test covers" in capsys.readouterr().out
