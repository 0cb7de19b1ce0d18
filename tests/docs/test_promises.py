"""Each promise that the page on staging makes names a test that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/staging.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests/staging"
NAMED = re.compile(r"`((?:[\w/]*/)?test_\w+)(\.py)?`")
"""A file of tests, or a test in the file that was named before it."""
NO_PROMISES = (
    "Staging copies a dataset", "CosmoFlow:", "DeepCAM:", "The tables show:", "**Memory of a rank**",
    "Each promise names the test", "The tests run parts of these campaigns", "`python benchmarks/staging.py` compares",
)  # fmt: skip
"""How paragraphs begin, outside the lists, that promise nothing that a test could hold."""
JOBS = (ROOT / "docs/running-on-a-supercomputer.md").read_text(encoding="utf-8")
JOB_TESTS = ROOT / "tests/slurm"


def items(title: str) -> list[str]:
    """The items of the list in a section."""
    section = PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)


def paragraphs() -> list[str]:
    """The paragraphs of the page: what is no heading, list, table or block of commands."""
    prose = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [text for text in prose.split("\n\n") if text.strip() and not text.lstrip("\n").startswith(("#", "- ", "|"))]


def interruptions() -> list[list[str]]:
    """The cells of the rows of the table of what interrupts a job."""
    section = JOBS.split("\n## What interrupts a job\n")[1].split("\n## ")[0]
    table = next(text for text in section.split("\n\n") if text.startswith("| |")).splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[2:]]


def path_of(name: str, below: Path = TESTS) -> Path:
    """Where a file of tests is that the page names."""
    return ROOT / name if name.startswith("tests/") else below / name


def functions(path: Path) -> set[str]:
    """The tests in a file."""
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def missing(page: str, below: Path = TESTS) -> list[str]:
    """The files that a page names and that are not there, and the tests that are not in the file named before them."""
    lacking, path = [], None
    for name, is_file in NAMED.findall(page):
        if is_file:
            path = path_of(f"{name}.py", below)
            lacking += [] if path.is_file() else [f"{name}.py"]
        elif path is None or not path.is_file() or name not in functions(path):
            lacking.append(f"{path.name if path else 'no file'}: {name}")
    return lacking


def test_there_are_promises() -> None:
    assert len(items("What is safe")) > 6
    assert len(items("Limits")) > 6
    assert len(items("What the figures mean")) > 5


@pytest.mark.parametrize("promise", items("What is safe"), ids=lambda promise: promise.split("**")[1])
def test_a_promise_names_a_test(promise: str) -> None:
    assert any(is_file for _, is_file in NAMED.findall(promise)), promise


@pytest.mark.parametrize("limit", items("Limits"), ids=lambda limit: " ".join(limit.split()[:5]))
def test_a_limit_names_a_test(limit: str) -> None:
    assert any(is_file for _, is_file in NAMED.findall(limit)), limit


@pytest.mark.parametrize("meaning", items("What the figures mean"), ids=lambda meaning: meaning.split("**")[1])
def test_the_meaning_of_a_figure_names_a_test(meaning: str) -> None:
    assert any(is_file for _, is_file in NAMED.findall(meaning)), meaning


@pytest.mark.parametrize("text", paragraphs(), ids=lambda text: " ".join(text.split()[:4]))
def test_a_paragraph_names_a_test_unless_it_promises_nothing(text: str) -> None:
    assert any(is_file for _, is_file in NAMED.findall(text)) or text.strip().startswith(NO_PROMISES)


def test_paragraphs_without_promises_are_of_today() -> None:
    assert [start for start in NO_PROMISES if not any(text.strip().startswith(start) for text in paragraphs())] == []


@pytest.mark.parametrize("row", interruptions(), ids=lambda row: row[0])
def test_what_interrupts_a_job_names_its_test(row: list[str]) -> None:
    names = NAMED.findall(row[3])
    assert [bool(is_file) for _, is_file in names] == [True, False]
    assert missing(row[3], JOB_TESTS) == []


def test_the_tests_of_other_paragraphs_on_jobs_are_there() -> None:
    section = JOBS.split("\n## What interrupts a job\n")[1].split("\n## ")[0]
    assert len(interruptions()) >= 6
    assert missing(section, JOB_TESTS) == []


def test_all_tests_that_the_page_names_are_there() -> None:
    assert sum(not is_file for _, is_file in NAMED.findall(PAGE)) > 20
    assert missing(PAGE) == []


@pytest.mark.parametrize(
    ("page", "lacking"),
    [
        ("`test_sinks.py`, `faults/test_full_filesystems.py`, `tests/docs/test_promises.py`", []),
        ("`test_gone.py`", ["test_gone.py"]),
        ("`faults/test_sinks.py`", ["faults/test_sinks.py"]),
        ("`test_clean.py`: `test_names_that_stay_inside`,\n  `test_gone`", ["test_clean.py: test_gone"]),
        (
            "`test_clean.py`, `test_sinks.py`: `test_names_that_stay_inside`",
            ["test_sinks.py: test_names_that_stay_inside"],
        ),
        ("`test_names_that_stay_inside`", ["no file: test_names_that_stay_inside"]),
    ],
)
def test_what_the_page_names_and_is_not_there_is_found(page: str, lacking: list[str]) -> None:
    assert missing(page) == lacking
