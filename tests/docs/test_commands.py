"""Every command line on a page is one that its parser accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_lines import in_blocks, in_sentences, refusal

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/*/README.md"),
                *ROOT.glob("b*/README.md")])  # fmt: skip


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_the_commands_of_a_page_parse(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    refused = {" ".join(words): refusal(words) for words in in_blocks(page)}
    refused |= {" ".join(words): refusal(words, may_be_cut=True) for words in in_sentences(page)}
    assert {command: why for command, why in refused.items() if why is not None} == {}


def test_commands_are_found() -> None:
    pages = [path.read_text(encoding="utf-8") for path in PAGES]
    blocks = [words for page in pages for words in in_blocks(page)]
    assert len(blocks) >= 40
    assert len([words for words in blocks if words[0] == "study"]) >= 9
    assert len([words for page in pages for words in in_sentences(page)]) >= 40


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hpcbench study strong cosmoflow \\\n  --nodes 1,2 --study-dir s  # on two", None),
        ("$ mpiexec -n 4 hpcbench train cosmoflow --optim.lr 0.1 && echo done", None),
        ("hpcbench study strong cosmoflow --seeds 3 ...", "hpcbench study strong has no --seeds"),
        ("hpcbench data simulate data/cosmoflow --out data", "is no name of an application"),
        ("hpcbench data verify --data.root data", "required: APP"),
        ("hpcbench study report DIR --optim.lr 3", "takes no dotted settings"),
    ],
)
def test_what_would_be_refused(line: str, why: str | None) -> None:
    (words,) = in_blocks(f"text\n```sh\n{line}\n```\n")
    said = refusal(words)
    assert (said is None) if why is None else why in str(said)
