"""The source tree of hpcbench: where it is, which parts are packed, and the wheel that is built from it."""

from __future__ import annotations

import re
import shutil
import tarfile
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import hpcbench
from hpcbench import DISTRIBUTION
from hpcbench.bundle.resolve import run_pip
from hpcbench.bundle.wheels import Wheel, read_wheel
from staging.errors import InputError

PACKED = (
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "apps", "batch_scripts",
    "benchmarks", "containers", "contrib", "docs", "hpcbench", "mkdocs.yml", "noxfile.py", "pyproject.toml", "staging",
    "tests",
)  # fmt: skip
"""What a clone contains; run folders and datasets beside these are left out."""
LEFT_OUT = ("__pycache__", "*.egg-info", "*.pyc")
VERSION_VARIABLE = "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_HPCBENCH_ML"
"""Tells setuptools-scm the version of a tree that has no history."""


def find_source(folder: Path | None) -> Path:
    """The source tree at ``folder``; by default that of this package, or else the current folder.

    Raises ``InputError`` if there is none.
    """
    places = [folder] if folder else [Path(hpcbench.__file__).resolve().parents[1], Path.cwd()]
    source = next((place for place in places if (place / "pyproject.toml").is_file()), None)
    if source is None:
        where = (
            f"--source {folder} holds" if folder else "this hpcbench is installed without its source; this folder has"
        )
        raise InputError(f"{where} no pyproject.toml; name a clone of the repository with --source")
    if read_project(source).get("name") != DISTRIBUTION:
        raise InputError(
            f"{source}/pyproject.toml is not of {DISTRIBUTION}; name a clone of its repository with --source"
        )
    return source


def read_project(source: Path) -> dict[str, Any]:
    """The table ``project`` of a source tree. Raises ``InputError`` if it cannot be read."""
    path = source / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise InputError(f"{path}: cannot be read as TOML; name a clone of the repository with --source") from None
    return dict(project)


def version_of(source: Path) -> str:
    """The version of a source tree: its project's, or that of the installation that was made from it, or its fallback.

    A bundle has no tags, from which the version of a clone is made.
    """
    path = source / "pyproject.toml"
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    if "version" in settings["project"]:
        return str(settings["project"]["version"])
    installed = source / settings["tool"]["setuptools_scm"]["version_file"]
    text = installed.read_text(encoding="utf-8") if installed.is_file() else ""
    written = re.search(r"^__version__ = .*'(.+)'$", text, re.MULTILINE)
    return written[1] if written else str(settings["tool"]["setuptools_scm"]["fallback_version"])


def lowest_version(project: dict[str, Any], name: str) -> str:
    """The lowest version of a dependency that the project allows."""
    for text in project["dependencies"]:
        requirement = Requirement(text)
        if requirement.name == name:
            return next(specifier.version for specifier in requirement.specifier if specifier.operator == ">=")
    raise AssertionError(f"{DISTRIBUTION} does not depend on {name}")


def copy_source(source: Path, tree: Path) -> None:
    """Copy the source to the new folder ``tree``, without files that are generated from it."""
    tree.mkdir()
    for name in PACKED:
        entry = source / name
        if entry.is_dir():
            shutil.copytree(entry, tree / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
        elif entry.is_file():
            shutil.copyfile(entry, tree / name)


def pack(folder: Path, out: Path, level: int = 6) -> None:
    """Write a folder as a tar archive, compressed with gzip, that says nothing about who packed it."""
    with tarfile.open(out, "w:gz", compresslevel=level) as archive:
        archive.add(folder, folder.name, filter=anonymous)


def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry that belongs to nobody in particular."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def build_wheel(tree: Path, folder: Path, version: str) -> Wheel:
    """Build the wheel of a copy of the source into ``folder``; the build changes the copy."""
    isolation = ["--no-build-isolation"] if builds_here(tree) else []
    words = ["wheel", "--no-deps", *isolation, "--wheel-dir", str(folder), str(tree)]
    run_pip(words, f"the wheel of {DISTRIBUTION}", {VERSION_VARIABLE: version})
    (path,) = folder.glob("*.whl")
    return read_wheel(path)


def builds_here(tree: Path) -> bool:
    """Whether everything that builds the wheel is installed here, so that pip need not fetch it."""
    needed = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    try:
        return all(
            requirement.specifier.contains(metadata.version(requirement.name))
            for requirement in map(Requirement, needed)
        )
    except metadata.PackageNotFoundError:
        return False
