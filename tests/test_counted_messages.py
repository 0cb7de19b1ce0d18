"""Messages count in words: ``1 file``, ``2 files``, and never ``file(s)``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documented_commands import ROOT

PLURAL = re.compile(r"\w\(s\)")
OFTEN_ONE = re.compile(r"^ (accelerators|cores|entries|GPUs|micro-batches|nodes|threads|trainings)\b")
"""What a laptop or a small job often has just one of."""
SEVERAL = {
    "the first sizes of a line, which begins with the word 'N'": {"words nodes", "ladder nodes"},
    "constants": {"SIZES[place] accelerators", "SIZES[-1] accelerators"},
    "more than another count, or than one": {
        "size accelerators", "total accelerators", "record.accelerators accelerators", "count accelerators",
        "ranks accelerators", "launch.nodes nodes", "shards nodes", "study.nodes nodes", "last nodes",
        "largest nodes", "', '.join(once) nodes", "', '.join(doubts) nodes",
        "config.train.accumulation micro-batches", "predictions.options.instances trainings", "nodes nodes",
        "len(nodes) nodes", "sharing nodes", "scenario.replicates * per_run nodes",
    },
}  # fmt: skip
"""Counts that are never one where they are put before a plural, by the reason; others take ``counted``."""
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


def plurals(path: Path) -> Iterator[str]:
    """Each number that an f-string of a file puts right before a plural, unless it is a part: ``of 4 nodes``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for before, value, after in triples(node) if isinstance(node, ast.JoinedStr) else ():
            noun = OFTEN_ONE.match(after)
            if noun is not None and not re.search(r"\bof (the |all )?$", before):
                yield f"{ast.unparse(value)} {noun[1]}"


def triples(text: ast.JoinedStr) -> Iterator[tuple[str, ast.expr, str]]:
    """What stands in an f-string before each value, the value, and what stands after it."""
    parts = [ast.Constant(""), *text.values, ast.Constant("")]
    for before, part, after in zip(parts, parts[1:], parts[2:], strict=False):
        if isinstance(part, ast.FormattedValue):
            texts = [str(each.value) if isinstance(each, ast.Constant) else "" for each in (before, after)]
            yield texts[0], part.value, texts[1]


@pytest.mark.slow
def test_what_may_be_one_is_counted_in_words() -> None:
    paths = [path for top in ("apps", "hpcbench", "staging") for path in sorted((ROOT / top).rglob("*.py"))]
    found = {text for path in paths for text in plurals(path)}
    assert found == set().union(*SEVERAL.values())


def test_the_search_finds_a_number_before_a_plural(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'f"{n:,} nodes, {k} of {m} cores, 3 of the {c} GPUs, {len(x)} threads and {y} nodesets"\n'
    )
    assert list(plurals(tmp_path / "a.py")) == ["n nodes", "len(x) threads"]


def test_the_search_finds_such_texts(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Of 2 file(s)."""\nprint(f"{1} node(s), {2}")\n')
    assert [(line, text) for line, text in texts(tmp_path / "a.py") if PLURAL.search(text)] == [(2, " node(s), ")]
