"""The folders with a user's own files: sites, machines and campaigns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def user_folder(variable: str, name: str, environ: Mapping[str, str]) -> Path | None:
    """The folder that ``variable`` names, else ``~/.config/hpcbench/NAME``; ``None`` for a user without a home."""
    if environ.get(variable):
        return Path(environ[variable])
    try:
        return Path.home() / ".config" / "hpcbench" / name
    except RuntimeError:  # neither $HOME nor an entry in passwd, as for some users in containers
        return None


def user_file(variable: str, name: str, file: str, environ: Mapping[str, str]) -> str:
    """Where a user would put a file of their own, in words."""
    folder = user_folder(variable, name, environ)
    return f"{file} in the folder that {variable} names" if folder is None else str(folder / file)
