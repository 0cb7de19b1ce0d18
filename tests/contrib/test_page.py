"""docs/contrib.md: its commands are those that tests run, and what is untried says so."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise

import pytest

from tests.documented_commands import BLOCK, ROOT, programs

PAGE = (ROOT / "docs" / "contrib.md").read_text(encoding="utf-8")
TEST = (ROOT / "contrib" / "reframe" / "hpcbench_train.py").read_text(encoding="utf-8")
BUILT_IN = {"executable", "time_limit"}
"""Variables that ReFrame gives every test."""


def section(title: str) -> str:
    """The text below a heading of the page."""
    return re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:][SECTIONS.index(title)]


SECTIONS = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)


def test_each_block_is_one_that_a_test_runs_or_untried() -> None:
    begin = {found["text"].split()[0] for found in BLOCK.finditer(PAGE)}
    assert begin == {"eval", "hpcbench", "mkdir", "reframe", "spack"}
    assert "**Untried.**" in section("Spack")
    row = re.findall(r"^\| (Spack|Apptainer, Podman) \|.*\*\*(\w+)\*\*", PAGE, re.MULTILINE)
    assert row == [("Spack", "untried"), ("Apptainer, Podman", "unbuilt")]


def test_options_of_the_page_are_parameters_and_variables_of_the_test() -> None:
    commands = [words for found in BLOCK.finditer(PAGE) for words in programs(found["text"]) if words[0] == "reframe"]
    assert len(commands) == 2
    typed = {(option, value.partition("=")[0]) for words in commands
             for option, value in pairwise(words) if option in ("-P", "-S")}  # fmt: skip
    told = set(re.findall(r"`(-[PS]) '?(\w+)=", section("ReFrame")))
    parameters = set(re.findall(r"^    (\w+) = parameter\(", TEST, re.MULTILINE))
    variables = set(re.findall(r"^    (\w+) = variable\(", TEST, re.MULTILINE))
    assert {name for option, name in typed | told if option == "-P"} == parameters
    assert {name for option, name in typed | told if option == "-S"} == variables | BUILT_IN


def test_figures_of_the_page_are_those_of_the_test() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", section("ReFrame"), re.MULTILINE)
    units = re.search(r"^UNITS = \{(.*)\}$", TEST, re.MULTILINE)
    assert units is not None
    assert dict(rows) == dict(re.findall(r'"(\w+)": "([^"]+)"', units[1]))


@pytest.mark.parametrize("line", re.findall(r"^cp -r (\S+)", PAGE, re.MULTILINE))
def test_what_is_copied_is_there(line: str) -> None:
    assert (ROOT / shlex.split(line)[0] / "package.py").is_file()
