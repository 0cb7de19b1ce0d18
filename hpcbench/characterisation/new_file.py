"""Writes a file under a name that nothing has, so that neither another's file nor what was measured is lost."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from staging.atomic import TEMPORARY_SUFFIX, take_name
from staging.errors import InputError


def write_new(path: Path, option: str, write: Callable[[Path], object]) -> Path:
    """Write a file by way of a temporary name, and return its path.

    If ``path`` exists by then, the file gets a number, such as ``name-2.json``. Raises ``InputError`` that names
    ``option`` where nothing can be written.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY_SUFFIX}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(part)
            return published(part, path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); give another name with {option}") from error


def published(part: Path, path: Path) -> Path:
    """Give ``part`` the first of ``names`` that nothing has, and return it."""
    for name in names(path):
        try:
            take_name(part, name)
        except FileExistsError:
            continue
        return name
    raise AssertionError("names never end")


def names(path: Path) -> Iterator[Path]:
    """``path``, then the same with numbers from 2."""
    yield path
    yield from (path.with_stem(f"{path.stem}-{number}") for number in count(2))
