"""Messages count in words: ``1 file``, ``2 files``, and never ``file(s)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documented_commands import ROOT

PLURAL = re.compile(r"\w\(s\)")
OF_LSCPU = {"Socket(s)", "Core(s) per socket"}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The line and text of every string of a file, parts of f-strings included, except docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.lineno, node.value


@pytest.mark.slow
def test_no_message_leaves_the_plural_to_its_reader() -> None:
    paths = [path for top in ("apps", "hpcbench", "staging") for path in sorted((ROOT / top).rglob("*.py"))]
    assert len(paths) > 500
    left = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in paths
        for line, text in texts(path)
        if PLURAL.search(text) and text not in OF_LSCPU
    ]
    assert left == []


def test_the_search_finds_such_texts(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Of 2 file(s)."""\nprint(f"{1} node(s), {2}")\n')
    assert [(line, text) for line, text in texts(tmp_path / "a.py") if PLURAL.search(text)] == [(2, " node(s), ")]
