"""The projection is judged by published entries as its page says, and the record is what the program makes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from projection import entries, judged, summary

from hpcbench.submission.published_ratios import published_entries

ROOT = Path(__file__).parents[2]
RECORD = json.loads((ROOT / "benchmarks" / "results" / "projection.json").read_text(encoding="utf-8"))["results"]


@pytest.mark.slow
def test_the_record_is_what_the_program_makes() -> None:
    published = published_entries()
    found = [one for runs in entries() if (one := judged(runs, published)) is not None]
    for name, is_reference in (("reference recipe", True), ("another recipe", False)):
        assert summary([one for one in found if one.reference_recipe is is_reference]) == pytest.approx(RECORD[name])


@pytest.mark.parametrize(
    ("words", "name"), [("that of the reference", "reference recipe"), ("another", "another recipe")]
)
def test_the_page_has_the_numbers_of_the_record(words: str, name: str) -> None:
    page = (ROOT / "docs" / "submissions.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {words} \| (\d+) \| ([\d.]+) % \| ([\d.]+) % \| (\d+) \|$", page, re.MULTILINE)
    assert found is not None
    one = RECORD[name]
    assert found.groups() == (
        str(one["entries"]), f"{100 * one['median_error']:.1f}", f"{100 * one['largest_error']:.1f}",
        str(one["within_interval"]),
    )  # fmt: skip
