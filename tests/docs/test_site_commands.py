"""Every documented command for a site passes the check of what fits, on nodes as the site has them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from hpcbench.batch.site import find_site
from hpcbench.cli.commands import COMMANDS
from hpcbench.cli.main import main
from tests.command_lines import in_blocks, in_lines, in_sentences

pytestmark = pytest.mark.usefixtures("forked_processes")

ROOT = Path(__file__).parents[2]
LOG = ROOT / "tests" / "data" / "logs" / "v1.0-nvidia-cosmoflow.txt"
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/*/README.md")])


def documented() -> list[tuple[str, ...]]:
    """The commands with a site, of pages and help texts, each once."""
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    found = [words for text in texts for words in (*in_blocks(text), *in_sentences(text))]
    found += [words for text in helps() for words in in_lines(text)]
    whole = [words for words in found if "--site" in words and "..." not in words and "NAME" not in words]
    # A campaign has a plan of its own, which tests/hpcbench/campaign looks at.
    whole = [words for words in whole if words[0] != "campaign"]
    # A convergence study counts the samples of the dataset at hand; test_pages.py types its commands.
    whole = [words for words in whole if tuple(words[:2]) != ("study", "convergence")]
    # The site of docs/extending.md is that page's own package, which test_extending.py installs and submits to.
    whole = [words for words in whole if words[words.index("--site") + 1] != "lab"]
    return sorted({tuple(word for word in words if word != "--dry-run") for words in whole})


def helps() -> list[str]:
    """The help texts with commands for sites."""
    from hpcbench.cli import study_scaling, submit

    return [submit.DESCRIPTION, study_scaling.STRONG, study_scaling.WEAK, study_scaling.THROUGHPUT]


def test_there_are_commands_for_sites() -> None:
    assert {"submit", "study"} <= set(COMMANDS)
    assert len([words for words in documented() if words[0] == "study"]) >= 5
    assert len([words for words in documented() if words[0] == "submit"]) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("words", documented(), ids=" ".join)
def test_a_documented_command_fits_its_site(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if "--recipe-from" in words:  # a log that the reader has
        shutil.copyfile(LOG, words[words.index("--recipe-from") + 1])
    there = list(tmp_path.iterdir())
    assert main([*words, "--dry-run"]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "node-hours" in said.out + said.err
    assert "warning" not in said.out + said.err
    assert list(tmp_path.iterdir()) == there


QUEUED = r"""#!/bin/sh
echo "$PWD" >> "${0%/bin/*}/submitted"
echo "$(wc -l < "${0%/bin/*}/submitted").server"
"""
"""A ``qsub`` that takes every job."""


@pytest.mark.slow
def test_a_ladder_outside_the_queue_of_its_profile_is_submitted_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ladder on a PBS machine, as the page has it: ``most_jobs`` of the profile is for another queue."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/qsub").write_text(QUEUED)
    (tmp_path / "bin/qsub").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    page = (ROOT / "docs/running-on-a-supercomputer.md").read_text(encoding="utf-8")
    (words,) = [words for words in in_blocks(page) if words[:2] == ["study", "weak"]]
    assert find_site("polaris").most_jobs == 1
    assert main(words) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    (jobs,) = re.findall(r"This study takes at most 225 node-hours, in (\d+) jobs\.", page)
    assert f"{jobs} jobs, at most 225 node-hours" in said
    assert len((tmp_path / "submitted").read_text().splitlines()) == int(jobs)
    assert "not submitted yet" not in said
