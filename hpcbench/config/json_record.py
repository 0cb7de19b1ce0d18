"""Dataclasses from the JSON that the suite itself wrote, and that somebody may have damaged or edited since."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hpcbench.config.bounds import check_bounds
from hpcbench.config.typed_values import words_of
from staging.bounds import shown
from staging.errors import DataError, InputError

T = typing.TypeVar("T")
KINDS: Mapping[Any, Any] = {str: str, bool: bool, int: int, float: (int, float)}
"""What JSON has for the types of fields. True is no number, although Python takes it for one."""


def read_record(kind: type[T], path: Path, advice: str) -> T:
    """The dataclass that the file ``path`` holds; see ``record``. Raises ``FileNotFoundError`` where there is none."""
    from staging.formats.regular import read_text  # it loads NumPy, which `--help` does without

    try:
        values = json.loads(read_text(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(path, f"is damaged ({' '.join(str(error).split())[:80]})", advice) from None
    return record(kind, values, path, advice)


def record(kind: type[T], values: Any, path: Path, advice: str) -> T:
    """A dataclass from the values of a file. Fields that it does not have are those of another version.

    Raises ``DataError``, which names ``path`` and has ``advice``, for a missing field, a value of another type, and a
    number beyond its bounds.
    """
    try:
        made = made_of(kind, values, "")
        check_bounds(made)
    except InputError as error:
        raise DataError(path, f"is damaged ({error})", advice) from None
    return made


def made_of(kind: type[T], values: Any, where: str) -> T:
    """See ``record``; ``where`` begins the names of fields. Raises ``InputError``."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where.rstrip('.') or 'it'} ({shown(values)}) is no group of fields")
    hints, found = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        if field.name in values:
            found[field.name] = value_of(values[field.name], hints[field.name], f"{where}{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(f"{where}{field.name} is missing")
    return kind(**found)


def value_of(value: Any, hint: Any, key: str) -> Any:
    """``value`` as one of the type ``hint``. Raises ``InputError`` that names ``key``."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        (kind,) = (each for each in inner if each is not type(None))
        return None if value is None else value_of(value, kind, key)
    if dataclasses.is_dataclass(hint):
        return made_of(typing.cast("type[Any]", hint), value, f"{key}.")
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(value_of(each, inner[0], f"{key}[{place}]") for place, each in enumerate(value))
    if origin is Mapping and isinstance(value, Mapping):
        return {name: value_of(each, inner[1], f"{key}.{shown(name)}") for name, each in value.items()}
    if (origin is Literal and value in inner) or is_plain(value, hint):
        return value
    raise InputError(f"{key} ({shown(value)}) must be {words_of(hint)}")


def is_plain(value: Any, kind: Any) -> bool:
    """Whether ``value`` is the text, the truth value or the finite number that a field of the type ``kind`` takes."""
    if kind not in KINDS or not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind is not bool):
        return False
    return not isinstance(value, float) or math.isfinite(value)
