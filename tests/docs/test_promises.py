"""Each promise that the page on staging makes of safety names a test that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/staging.md").read_text(encoding="utf-8")
TESTS = ROOT / "tests/staging"


def promises() -> list[str]:
    """The items of the section on safety."""
    section = PAGE.split("\n## What is safe\n")[1].split("\n## ")[0]
    return re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)


def test_there_are_promises() -> None:
    assert len(promises()) > 6


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.split("**")[1])
def test_a_promise_names_a_test(promise: str) -> None:
    assert re.findall(r"`[\w/]*test_\w+\.py`", promise), promise


def test_all_tests_that_the_page_names_are_there() -> None:
    named = re.findall(r"`([\w/]*test_\w+\.py)`", PAGE)
    assert [name for name in named if not (TESTS / name).is_file()] == []
