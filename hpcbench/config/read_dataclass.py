"""Dataclasses from the values of a file, key by key: what people wrote as YAML, and what the suite wrote as JSON."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from hpcbench.config.bounds import check_bounds
from hpcbench.config.typed_values import typed, words_of
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError

T = typing.TypeVar("T")
JSON_KINDS: Mapping[Any, Any] = {str: str, bool: bool, int: int, float: (int, float)}
"""The JSON types for the types of fields. True is not a number, although Python takes it for one."""


@dataclasses.dataclass(frozen=True)
class Reading:
    """How the values of a file become those of fields."""

    is_json: bool
    """Whether they must already have the types of the fields; otherwise they are converted."""
    ignore_unknown: bool = False
    """Whether keys unknown to the dataclass are left out, as another version's; otherwise they are refused."""


def from_values(kind: type[T], values: Any, where: str) -> T:
    """A dataclass from the values of a YAML file, converted to the types of its fields.

    Fields may be dataclasses, or tuples of one. Raises ``InputError`` that begins with ``where`` for an unknown or
    missing key, a wrong type, and a number outside its bounds.
    """
    return made_of(kind, values, where, Reading(is_json=False))


def from_json(kind: type[T], values: Any, where: str, *, ignore_unknown: bool = False) -> T:
    """A dataclass from the values of a JSON file, which must have its fields' types; else like ``from_values``."""
    return made_of(kind, values, where, Reading(True, ignore_unknown))


def made_of(kind: type[T], values: Any, where: str, reading: Reading) -> T:
    """See ``from_values``."""
    if not isinstance(values, Mapping):
        raise InputError(f"{where.rstrip('.: ') or 'it'} must hold keys and values, not {shown(values)}")
    hints = typing.get_type_hints(kind)
    for key in () if reading.ignore_unknown else values:
        if key not in hints:
            raise InputError(f"{where}unknown key '{shown(key)}'; {suggest(key, list(hints))}")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            before = f"{where[:-1]} " if where.endswith(".") else where
            raise InputError(f"{before}lacks '{field.name}'; add it")
    known = [name for name in values if name in hints]
    made = kind(**{name: value_of(values[name], hints[name], f"{where}{name}", reading) for name in known})
    check_bounds(made, where)
    return made


def value_of(value: Any, hint: Any, key: str, reading: Reading) -> Any:
    """``value`` as one of the type ``hint``. Raises ``InputError`` that names ``key``."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        others = [member for member in inner if member is not type(None)]
        if value is None and len(others) < len(inner):
            return None
        if len(others) == 1 and (reading.is_json or dataclasses.is_dataclass(others[0])):
            return value_of(value, others[0], key, reading)
    if dataclasses.is_dataclass(hint):
        return made_of(
            typing.cast("type[Any]", hint), {} if value is None and not reading.is_json else value, f"{key}.", reading
        )
    if origin in (tuple, list) and (dataclasses.is_dataclass(inner[0]) or reading.is_json):
        if not isinstance(value, (list, tuple)):
            groups = " of groups of keys" if dataclasses.is_dataclass(inner[0]) else ""
            raise InputError(f"{key} ({shown(value)}) must be a list{groups}")
        return origin(value_of(entry, inner[0], f"{key}[{place}]", reading) for place, entry in enumerate(value))
    if origin in (Mapping, dict) and isinstance(value, Mapping) and reading.is_json:
        return {name: value_of(entry, inner[1], f"{key}.{shown(name)}", reading) for name, entry in value.items()}
    return check_type(value, hint, key) if reading.is_json else typed(value, hint, key)


def check_type(value: Any, hint: Any, key: str) -> Any:
    """``value``, which must have the JSON type for the type ``hint``, and be finite. Raises ``InputError``."""
    if hint is Any or (typing.get_origin(hint) is Literal and value in typing.get_args(hint)):
        return value
    is_kind = hint in JSON_KINDS and isinstance(value, JSON_KINDS[hint]) and isinstance(value, bool) is (hint is bool)
    if is_kind and (not isinstance(value, float) or math.isfinite(value)):
        return value
    raise InputError(f"{key} ({shown(value)}) must be {words_of(hint)}")
