"""Packages with entry points, as pip would lay them out, on ``sys.path`` for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcbench.application import find_application

Groups = Mapping[str, Mapping[str, str]]
"""Names and values of entry points by group."""


def write_distribution(folder: Path, name: str, groups: Groups, files: Mapping[str, str]) -> None:
    """An installed package ``name`` in ``folder``: its files, and what tells Python of its entry points."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    described = folder / f"{name.replace('-', '_')}-0.1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    sections = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
                for group, points in groups.items()]  # fmt: skip
    (described / "entry_points.txt").write_text("\n".join(sections))


@contextmanager
def installed(folder: Path) -> Iterator[None]:
    """The packages of a folder can be imported; afterwards, none of their modules is left."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        find_application.cache_clear()
        try:
            yield
        finally:
            find_application.cache_clear()
            for name in set(sys.modules) - before:
                if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                    del sys.modules[name]
