"""Dataclasses from the values of a YAML file, for the profiles of sites and the facts of machines."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from hpcbench.config.bounds import check_bounds
from hpcbench.config.typed_values import typed
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError

T = typing.TypeVar("T")


def from_values(kind: type[T], values: Any, where: str) -> T:
    """A dataclass from the values of a file; fields may be dataclasses, or tuples of one.

    Raises ``InputError`` that begins with ``where`` for an unknown or missing key, a wrong type, and a number beyond
    its bounds.
    """
    hints = typing.get_type_hints(kind)
    if not isinstance(values, Mapping):
        raise InputError(f"{where.rstrip('. ')} must hold keys and values, not {shown(values)}")
    for key in values:
        if key not in hints:
            raise InputError(f"{where}unknown key '{shown(key)}'; {suggest(key, list(hints))}")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and field.name not in values:
            raise InputError(f"{where}lacks '{field.name}'; add it")
    made = kind(**{key: field_value(value, hints[key], f"{where}{key}") for key, value in values.items()})
    check_bounds(made, where)
    return made


def field_value(value: Any, hint: Any, key: str) -> Any:
    """One value as its field's type says."""
    if dataclasses.is_dataclass(hint):
        return from_values(typing.cast("type[Any]", hint), value or {}, f"{key}.")
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and dataclasses.is_dataclass(inner[0]):
        if not isinstance(value, list):
            raise InputError(f"{key} ({shown(value)}) must be a list of groups of keys")
        kind = typing.cast("type[Any]", inner[0])
        return tuple(from_values(kind, entry, f"{key}[{number}].") for number, entry in enumerate(value))
    return typed(value, hint, key)
