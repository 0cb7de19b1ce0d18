"""The distribution has its own name everywhere: in its metadata, and wherever something says how to install it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest

from hpcbench import DISTRIBUTION, __version__

ROOT = Path(__file__).parents[2]
FOLDERS = (".ci", "apps", "batch_scripts", "benchmarks", "docs", "hpcbench", "staging", "tests")
RECORDED = ROOT / "docs" / "studies"
"""Runs as they were, with the words of their day."""
ENDINGS = ("", ".md", ".py", ".sh", ".tmpl", ".html", ".yaml")
INSTALLED = re.compile(r"pip install (?:-[\w-]+ )*[\"']?(hpcbench[\w-]*)")
NEEDED = re.compile(r"dependencies = \[\"(hpcbench[\w-]*)")
WITH_EXTRAS = re.compile(r"(?<![\w{-])(hpcbench[\w-]*|pip install [\"']\.)\[([a-z][a-z,]*)\]")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def texts() -> Iterator[tuple[str, str]]:
    """Every file that people read or write, by its path in the repository, with what it holds."""
    files = [ROOT / "README.md", *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))]
    for path in files:
        if path.suffix in ENDINGS and path.is_file() and not path.is_relative_to(RECORDED):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_the_installed_distribution_has_the_name_the_version_and_the_extras_of_the_project() -> None:
    installed = distribution(DISTRIBUTION)
    assert installed.metadata["Name"] == PROJECT["name"] == DISTRIBUTION == "hpcbench-ml"
    assert installed.version == __version__
    assert set(installed.metadata.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    commands = {point.name: point.value for point in installed.entry_points if point.group == "console_scripts"}
    assert commands == {"hpcbench": "hpcbench.cli.main:main"}


def test_all_that_installs_or_needs_it_calls_it_by_its_name() -> None:
    found = {
        (path, name) for path, text in texts() for pattern in (INSTALLED, NEEDED) for name in pattern.findall(text)
    }
    assert {path for path, name in found if name != DISTRIBUTION} == set()
    pages = {"docs/your-own-model.md", "docs/optimizers.md"}
    messages = {"hpcbench/measure/diagnose.py", "hpcbench/measure/energy_sources.py"}
    assert pages | messages | {"hpcbench/skeleton/templates/pyproject.toml.tmpl"} <= {path for path, _ in found}


def test_no_page_takes_it_from_an_index() -> None:
    """It is installed from a clone or a bundle; its extras are named as they are added to what is there."""
    bare = re.compile(r"pip install (?:-[\w-]+ )*[\"']?hpcbench[\w-]*(?![\w\[-])")
    assert [path for path, text in texts() if path.endswith(".md") and bare.search(text)] == []


def test_every_extra_that_is_named_exists() -> None:
    named = {
        (path, name, extra)
        for path, text in texts()
        for name, extras in WITH_EXTRAS.findall(text)
        for extra in extras.split(",")
    }
    assert {(path, name) for path, name, _ in named if not name.startswith(("pip", DISTRIBUTION))} == set()
    assert {(path, extra) for path, _, extra in named if extra not in PROJECT["optional-dependencies"]} == set()
    assert {"local", "test", "fast", "dali", "tensorboard", "energy"} <= {extra for _, _, extra in named}


@pytest.mark.parametrize("package", ["apps", "hpcbench", "staging"])
def test_what_is_installed_has_every_file_of_the_packages(package: str) -> None:
    """Files that are not Python are named in pyproject.toml, or an installed command would lack them."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folder = ROOT / package
    there = {path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc", ".so")}
    named = {path for pattern in build["package-data"][package] for path in folder.glob(pattern)}
    assert [path.relative_to(ROOT).as_posix() for path in sorted(there - named)] == []
