"""Writes the package of a new application from the templates beside this file."""

from __future__ import annotations

import keyword
import re
import string
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from hpcbench.application import installed
from staging.errors import InputError

SUFFIX = ".tmpl"
PACKAGE = "package"
"""In a template's path, this word stands for the name of the application."""
LONGEST_NAME = 40


def write_package(name: str, out: Path) -> Path:
    """Write the package of application ``name`` to ``out / name``, whole or not at all; returns that folder.

    Raises ``InputError`` for a name that cannot be used, and for a folder that exists or cannot be written.
    """
    folder = new_folder(name, out)
    write_files(folder, render(name))
    return folder


def new_folder(name: str, out: Path) -> Path:
    """The folder of a package ``name``, not made yet. Raises ``InputError`` for a name that cannot be used."""
    check_name(name)
    folder = out / name
    if folder.exists():
        raise InputError(f"{folder} exists already; choose another NAME or another --out")
    check_is_free(name)
    return folder


def write_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files by their path below ``folder``, all of them or none. Raises ``InputError`` if that fails."""
    out, name = folder.parent, folder.name
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=out) as scratch:
            for path, text in texts.items():
                target = Path(scratch) / "new" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            (Path(scratch) / "new").rename(folder)
    except OSError as error:
        raise InputError(f"{folder}: cannot write there ({error.strerror}); choose another --out") from None


def render(name: str) -> dict[str, str]:
    """The files of the package by their path in it; ``$name`` in a template stands for ``name``."""
    root = Path(str(files(__package__))) / "templates"
    rendered = {}
    for path in sorted(root.rglob(f"*{SUFFIX}")):
        inside = path.relative_to(root).as_posix().removesuffix(SUFFIX).replace(PACKAGE, name)
        rendered[inside] = string.Template(path.read_text(encoding="utf-8")).substitute(name=name)
    return rendered


def check_name(name: str) -> None:
    """Refuse a name that cannot be that of a Python package and of a distribution."""
    rule = "take a lower-case Python identifier such as my_model"
    if len(name) > LONGEST_NAME:
        raise InputError(f"NAME '{name}' has {len(name)} characters, more than {LONGEST_NAME}; {rule}")
    if not re.fullmatch(r"[a-z]([a-z0-9_]*[a-z0-9])?", name):
        raise InputError(f"NAME '{name}' is not made of a-z, 0-9 and inner underscores, a letter first; {rule}")
    if keyword.iskeyword(name):
        raise InputError(f"NAME '{name}' is a word of the Python language; {rule}")


def check_is_free(name: str) -> None:
    """Refuse the name of another application or module, which the new package would hide or be hidden by."""
    if name in installed():
        raise InputError(f"NAME '{name}' is an installed application; choose another name")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise InputError(f"NAME '{name}' is a module that Python finds here already; choose another name")
