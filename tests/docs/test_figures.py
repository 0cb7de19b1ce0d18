"""What pages show of the output of their commands, and the node-hours that they name, are what the commands print."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from hpcbench.cli.main import main
from tests.documented_commands import BLOCK, ROOT, Command, of_page, programs

pytestmark = pytest.mark.usefixtures("forked_processes")

PAGES = ("scaling", "running-on-a-supercomputer")
LADDERS = [command for page in PAGES for command in of_page(ROOT / "docs" / f"{page}.md")
           if command.words[1] == "study" and "--site" in command.words]  # fmt: skip


@pytest.mark.slow
def test_the_table_of_meshes_is_what_plan_prints(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = list(BLOCK.finditer((ROOT / "docs" / "parallelism.md").read_text(encoding="utf-8")))
    ((shown, command),) = [(after["text"], before["text"]) for before, after in pairwise(blocks)
                           if after["language"] == "text"]  # fmt: skip
    ((_, *words),) = programs(command)
    assert main(words) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.slow
@pytest.mark.parametrize("page", ["running-on-a-supercomputer", "tutorials/first-job"])
def test_what_a_job_needs_is_what_its_submit_prints(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.finditer((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    (shown,) = [block["text"] for block in blocks if block["text"].startswith("batch ")]
    command = next(each for each in of_page(ROOT / "docs" / f"{page}.md") if each.words[:2] == ("hpcbench", "submit"))
    words = [word for word in command.words[1:] if word != "--dry-run"]
    assert main([*words, "--dry-run"]) == 0
    said = capsys.readouterr()
    assert (said.err + said.out).startswith(shown)


@pytest.mark.slow
@pytest.mark.parametrize("command", LADDERS, ids=lambda command: f"{' '.join(command.words[2:4])} {command.source}")
def test_the_node_hours_of_a_ladder_are_those_on_its_page(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in command.words[1:] if word != "--dry-run"]
    assert main([*words, "--dry-run"]) == 0
    jobs, hours = re.findall(r"(\d+) jobs, at most ([\d,.]+) node-hours", capsys.readouterr().out)[0]
    page = " ".join((ROOT / command.source).read_text(encoding="utf-8").split())
    assert f"{hours} node-hours" in page
    assert "submits" not in page or f"submits {jobs} jobs" in page or "submits all jobs" in page
