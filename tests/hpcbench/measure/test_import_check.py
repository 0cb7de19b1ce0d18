"""The processes in which ``hpcbench doctor`` imports packages: what they tell, and what happens when they end."""

from pathlib import Path

import pytest

from hpcbench.measure.import_check import IMPORT_PROGRAM, ChildPython, import_problem, import_problems


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which Python looks for packages first."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def problems(*modules: str, longest_s: float = 60.0) -> dict[str, str]:
    said, why = ChildPython(IMPORT_PROGRAM, *modules).answer(longest_s)
    return import_problems(said, why, modules)


def test_a_package_that_is_missing_is_told_in_the_words_of_python() -> None:
    words = "ModuleNotFoundError: No module named 'no_such_package'"
    assert import_problem("no_such_package") == words
    assert problems("no_such_package", "json") == {"no_such_package": words, "json": ""}


def test_a_package_that_ends_the_process_is_named(packages: Path) -> None:
    (packages / "good.py").write_text("print('I looked at it')\nprint([1])\n")
    (packages / "bad.py").write_text("import os\nos.abort()\n")
    assert problems("good", "bad", "after") == {"good": "", "bad": "exit code -6", "after": "not tried, after bad"}


def test_a_package_that_takes_too_long_is_named(packages: Path) -> None:
    (packages / "slow.py").write_text("import time\ntime.sleep(60)\n")
    assert problems("json", "slow", longest_s=1.0) == {"json": "", "slow": "not done in 1 s"}


def test_a_folder_where_the_command_was_started_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a clone of torch: the command itself does not look for packages there."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy/__init__.py").write_text("raise ImportError('a clone')\n")
    monkeypatch.chdir(tmp_path)
    assert problems("numpy") == {"numpy": ""}
