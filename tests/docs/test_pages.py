"""Every command of every page and help text is typed in order, at sizes of seconds, and leaves what it should."""

from __future__ import annotations

import ast
import re

import pytest

from hpcbench.results import style
from tests.docs.page_commands import (
    BEFORE,
    CLUSTER,
    COMMANDS,
    ELSEWHERE,
    HERE,
    LEAVES,
    NOT_RUN,
    ON_A_CLUSTER,
    ONLY_NAMED,
    check_files,
    needs_scheduler,
    to_run,
)  # fmt: skip
from tests.docs.walk import Walk
from tests.documented_commands import PROGRAMS, ROOT
from tests.undrawn import empty_svg

pytestmark = pytest.mark.usefixtures("forked_processes")
DRAWN = "README.md"
"""The page whose plots are drawn; tests/hpcbench draws those of all others."""


@pytest.mark.parametrize("source", COMMANDS)
def test_every_command_is_run_or_has_a_reason_not_to_be(source: str) -> None:
    unknown = [str(each) for each in COMMANDS[source] if each.words[0] not in PROGRAMS]
    assert unknown == [] or source in ELSEWHERE
    named = [each for each in ONLY_NAMED.get(source, []) if each not in map(str, COMMANDS[source])]
    assert named == [], "no longer on the page"


def test_reasons_are_of_today() -> None:
    typed = [f"{command} " for found in COMMANDS.values() for command in found]
    assert [beginning for beginning in NOT_RUN if not any(each.startswith(beginning) for each in typed)] == []
    assert {*ONLY_NAMED, *ELSEWHERE, *ON_A_CLUSTER, *BEFORE, *BEFORE.values(), *LEAVES} <= set(COMMANDS)
    assert [path for path in ELSEWHERE.values() if not (ROOT / path).exists()] == []
    assert len(HERE) + len(CLUSTER) >= 20


@pytest.mark.parametrize("beginning", NOT_RUN)
def test_what_is_not_run_here_is_run_by_a_test_that_there_is(beginning: str) -> None:
    (named,) = re.findall(r"(tests/[\w/]+\.py)::(\w+)", NOT_RUN[beginning])
    assert is_test(*named), NOT_RUN[beginning]


def is_test(path: str, name: str) -> bool:
    """Whether the file is there and has a test of this name."""
    if not (ROOT / path).is_file():
        return False
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


@pytest.mark.slow
@pytest.mark.usefixtures("mpiexec")
@pytest.mark.parametrize("source", HERE)
def test_the_commands_of_a_page_work_in_order(source: str, walk: Walk) -> None:
    if source != DRAWN:
        walk.patch.setattr(style, "svg", empty_svg)
    if source in BEFORE:
        walk.type(to_run(BEFORE[source])[0])
    for command in to_run(source):
        if not needs_scheduler(source, command) or "--dry-run" in command.words:
            walk.type(command)
    check_files(source)
