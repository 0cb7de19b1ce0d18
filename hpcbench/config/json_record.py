"""Dataclasses from the JSON that the suite itself wrote, and that somebody may have damaged or edited since."""

from __future__ import annotations

import json
import typing
from pathlib import Path
from typing import Any

from hpcbench.config.read_dataclass import from_json
from staging.errors import DataError, InputError

T = typing.TypeVar("T")


def read_record(kind: type[T], path: Path, advice: str) -> T:
    """The dataclass that the file ``path`` holds; see ``record``. Raises ``FileNotFoundError`` if there is none."""
    from staging.formats.regular import read_text  # it loads NumPy, which `--help` does without

    try:
        values = json.loads(read_text(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path, f"is damaged ({' '.join(str(error).split())[:80]})", advice) from None
    return record(kind, values, path, advice)


def record(kind: type[T], values: Any, path: Path, advice: str) -> T:
    """A dataclass from the values of a file. Unknown fields are taken for those of another version, and ignored.

    Raises ``DataError`` with ``path`` and ``advice`` for a missing field, a value of another type, and a number outside
    its bounds.
    """
    try:
        return from_json(kind, values, "", ignore_unknown=True)
    except InputError as error:
        raise DataError(path, f"is damaged ({error})", advice) from None
