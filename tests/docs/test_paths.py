"""Files of the code that pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]
NAMED = re.compile(r"`((?:hpcbench|staging|apps|tests|benchmarks|docs|batch_scripts)/[\w./-]+)`")


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_names_exist(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    terms = [line.split("|")[1].strip().lower() for line in lines if line.startswith("| ")][1:]
    assert len(terms) > 100
    assert terms == sorted(set(terms))
