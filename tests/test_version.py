"""The version comes from the tags of the repository, and the other files that name one agree with it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.version import Version
from setuptools_scm import get_version

from hpcbench.bundle.source import version_of

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools_scm"]
NEXT = Version(SETTINGS["fallback_version"]).base_version
"""The release that the repository is on the way to, or the last one."""


def version_at(folder: Path) -> str:
    """What a build in ``folder`` calls itself."""
    return get_version(folder, **{name: value for name, value in SETTINGS.items() if name != "version_file"})


def git(folder: Path, *words: str) -> None:
    """Run git as somebody in particular."""
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of one commit."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    git(tmp_path, "init", "--initial-branch", "main")
    git(tmp_path, "commit", "--allow-empty", "--message", "first")
    return tmp_path


def test_a_tag_is_the_version_of_its_commit_and_later_ones_are_on_the_way_to_the_next(repository: Path) -> None:
    assert version_at(repository) == f"{NEXT}.dev1"  # there is no tag yet
    git(repository, "tag", "v7.2.0")
    assert version_at(repository) == "7.2.0"
    for message in ("second", "third"):
        git(repository, "commit", "--allow-empty", "--message", message)
    assert version_at(repository) == "7.2.1.dev2"


def test_a_copy_without_the_history_takes_the_name_of_its_folder_or_the_fallback(tmp_path: Path) -> None:
    assert version_at(tmp_path) == SETTINGS["fallback_version"] == f"{NEXT}.dev0"
    unpacked = tmp_path / "hpcbench-ml-7.2.0"
    unpacked.mkdir()
    assert version_at(unpacked) == "7.2.0"


def test_a_bundle_has_the_version_of_the_installation_that_its_source_was_made_into(tmp_path: Path) -> None:
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    assert version_of(tmp_path) == SETTINGS["fallback_version"]
    written = tmp_path / SETTINGS["version_file"]
    written.parent.mkdir()
    here = tmp_path / "pyproject.toml"
    get_version(relative_to=here, fallback_version="7.2.1.dev3", version_file=SETTINGS["version_file"])
    assert "7.2.1.dev3" in written.read_text(encoding="utf-8")
    assert version_of(tmp_path) == "7.2.1.dev3"


def test_all_files_name_the_same_release() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == NEXT
    spack = ast.parse((ROOT / "contrib/spack/py-hpcbench-ml/package.py").read_text(encoding="utf-8"))
    named = [
        ast.literal_eval(node.args[0])
        for node in ast.walk(spack)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "version"
    ]
    assert named == [NEXT]
    released = re.findall(r"^## \[(\d[\w.]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert all(Version(version) <= Version(NEXT) for version in released)


def test_a_tagged_commit_is_a_release_that_the_changelog_has() -> None:
    words = ["git", "-C", str(ROOT), "tag", "--points-at", "HEAD", "v*"]
    tags = subprocess.run(words, check=False, capture_output=True, text=True).stdout.split()
    headings = re.findall(r"^## \[(.+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [tag for tag in tags if tag != f"v{NEXT}" or NEXT not in headings] == []
