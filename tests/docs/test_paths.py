"""Files of the code that pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.site.settings_reference import settings_page

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]
NAMED = re.compile(r"`((?:hpcbench|staging|apps|tests|benchmarks|docs|batch_scripts)/[\w./-]+)`")

SEARCHED = (
    "spatial parallelism", "domain decomposition", "halo exchange", "activation checkpointing",
    "gradient checkpointing", "gradient accumulation", "mixed precision", "synchronized batch norm", "SyncBatchNorm",
    "FSDP2", "ZeRO", "data parallel", "strong scaling", "weak scaling", "straggler", "roofline", "time to solution",
    "trust ratio",
)  # fmt: skip
"""Words of the field, under which people look for what the suite may name otherwise."""
OF_SETTINGS = {
    "parallel.spatial": "domain decomposition", "parallel.activation_checkpointing": "gradient checkpointing",
    "parallel.shard_states": "ZeRO", "train.accumulation": "gradient accumulation",
    "train.batchnorm_group_size": "synchronized batch norm",
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_the_files_that_a_page_names_exist(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    terms = [line.split("|")[1].strip().lower() for line in lines if line.startswith("| ")][1:]
    assert len(terms) > 100
    assert terms == sorted(set(terms))


def test_the_words_that_people_search_for_are_in_the_glossary() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").lower()
    assert [word for word in SEARCHED if word.lower() not in text] == []


def test_settings_say_the_words_that_people_search_for() -> None:
    rows = {name: line for line in settings_page().splitlines() for name in OF_SETTINGS if f"`{name}`" in line}
    assert {name: word in rows[name] for name, word in OF_SETTINGS.items()} == dict.fromkeys(OF_SETTINGS, True)
