"""Where stagings with faults take place, and what they stage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.staging.processes import make_tree, memory_folder


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where it can be: a flush of a disk waits for what others write to it."""
    with memory_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A few hundred small files."""
    make_tree(tmp_path / "source", 300)
    return tmp_path / "source"
