"""The page docs/first-hour.md works as it stands: each command, file and cell, section after section."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcbench.results.run_folder import RunFolder
from tests.conftest import Environment
from tests.documented_commands import ROOT
from tests.fork_server import forking_programs

PAGE = ROOT / "docs" / "first-hour.md"
PART = re.compile(r"^(?:\*\*`(?P<path>[^`]+)`\*\*\n\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SECTIONS = {
    found[1]: found[2]
    for found in re.finditer(
        r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
}
LEAVES = {
    "Change a preset": ["runs/plain/report.html", "runs/wider/report.html", "runs/wider.html"],
    "Add an optimizer": ["runs/lion/summary.json"],
    "Add an application": ["waves/README.md", "runs/waves/report.html"],
    "Run a study": ["studies/first/study.html", "studies/first/results.csv"],
    "Read it in a notebook": ["studies/first/epochs.png"],
}
DEMO = "hpcbench-demo"
"""Where `hpcbench demo` leaves its data and runs."""
FORKED = ("Change a preset", "Run a study")
"""The sections whose commands train again and again; the processes of all others are real."""
MAY_MISS = "--optim.name lion"
"""A training that need not reach its target."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands of all sections are typed."""
    return tmp_path_factory.mktemp("first-hour")


@pytest.fixture
def python(section: str, shared_environment: Environment) -> Iterator[Path]:
    """What runs the commands of a section: the Python of the environment with all that was installed into it."""
    if section not in FORKED:
        yield shared_environment.python
        return
    with (
        tempfile.TemporaryDirectory(prefix="fork-") as folder,
        forking_programs(Path(folder), shared_environment.python) as programs,
    ):
        yield programs / "python"


def commands(text: str) -> list[list[str]]:
    """The words of the commands of a block; a backslash goes on in the next line."""
    return [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def type_command(environment: Environment, python: Path, words: list[str], place: Path) -> str:
    """What one command of the page prints with ``python``; the suite itself is installed already."""
    if words[:4] == ["python", "-m", "pip", "install"]:
        assert words[4] == "--editable"
        if not words[5].startswith("."):
            environment.install("--editable", *words[5:], cwd=place)
        return ""
    assert words[0] == "hpcbench"
    done = environment.run("-m", *words, cwd=place, python=python)
    may_miss = done.returncode == 3 and MAY_MISS in " ".join(words)
    assert done.returncode == 0 or may_miss, f"{words} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_demo(printed: str, place: Path) -> None:
    """Both applications were trained to their targets with staged data, and have pages with drawings."""
    assert printed.count(": 1 rank x 1 thread on ") == 2, "OMP_NUM_THREADS"
    pages = [place / line.removeprefix("report: ") for line in printed.splitlines() if line.startswith("report: ")]
    assert [re.sub(r"-smoke-.*", "", page.parent.name) for page in pages] == ["cosmoflow", "deepcam"]
    for page in pages:
        html = page.read_text(encoding="utf-8")
        assert "<svg" in html or "data:image/png" in html
        summary = RunFolder.open(page.parent).read_summary()
        assert summary.status == "success"
        assert summary.baselines
        assert summary.phases_s["staging"] > 0
    table = [line for line in printed.splitlines() if re.search(r"\b(cosmoflow|deepcam)\b.*smoke", line)]
    assert len([line for line in table if not line.startswith(("$", "report:", "run folder:"))]) >= 2
    assert [path for path in place.iterdir() if path.name != DEMO] == []


@pytest.mark.slow
@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_works_as_it_stands(section: str, shared_environment: Environment, python: Path, place: Path) -> None:
    cells = ""
    for part in PART.finditer(SECTIONS[section]):
        if part["path"]:
            (place / part["path"]).parent.mkdir(parents=True, exist_ok=True)
            (place / part["path"]).write_text(part["text"], encoding="utf-8")
        elif part["kind"] == "bash":
            for words in commands(part["text"]):
                printed = type_command(shared_environment, python, words, place)
                if words[:2] == ["hpcbench", "demo"]:
                    check_demo(printed, place)
        else:
            assert part["kind"] == "python"
            cells += part["text"]
    if cells:
        (place / "cells.py").write_text(cells, encoding="utf-8")
        variables = os.environ | {"MPLBACKEND": "Agg"}
        subprocess.run([shared_environment.python, "cells.py"], cwd=place, env=variables, check=True)
    assert [each for each in LEAVES.get(section, []) if not (place / each).is_file()] == []
    if section == "Add an optimizer":
        assert "name: lion" in (place / "runs/lion/config.yaml").read_text()
        assert json.loads((place / "runs/lion/summary.json").read_text())["cause"] in ("target", "epochs")


def test_every_block_is_looked_at() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("\n```\n") == sum(len(PART.findall(each)) for each in SECTIONS.values()) == 11
    assert set(LEAVES) < set(SECTIONS)
