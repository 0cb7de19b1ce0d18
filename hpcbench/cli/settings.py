"""The list of settings that `hpcbench train APP --list` prints."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import typing
from itertools import pairwise
from typing import Any

from hpcbench.config.resolve import known_keys
from hpcbench.config.schema import RunConfig


def settings_table(config: RunConfig) -> str:
    """Every dotted key with its value in ``config`` and its description, at most 100 columns wide."""
    meanings = descriptions(type(config))
    lines = []
    for key, _ in known_keys(type(config)):
        if key == "preset":
            continue
        lines.append(f"--{key} {shown(lookup(config, key))}")
        lines += textwrap.wrap(meanings.get(key, ""), 92, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def descriptions(kind: type, prefix: str = "") -> dict[str, str]:
    """Dotted key to its one-line meaning: the text below a field of the dataclass ``kind``, or of a nested one."""
    hints = typing.get_type_hints(kind)
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        meanings |= field_texts(base)
    by_key: dict[str, str] = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            by_key |= descriptions(typing.cast("type", hint), f"{prefix}{field.name}.")
        elif field.name in meanings:
            by_key[f"{prefix}{field.name}"] = meanings[field.name]
    return by_key


def field_texts(kind: type) -> dict[str, str]:
    """The text below each field that the class ``kind`` itself declares; empty if its source cannot be read."""
    try:
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    except (OSError, SyntaxError, ValueError):
        return {}
    texts: dict[str, str] = {}
    for above, below in pairwise(body.body if isinstance(body, ast.ClassDef) else []):
        if not (isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            texts[above.target.id] = " ".join(str(below.value.value).split())
    return texts


def lookup(config: RunConfig, key: str) -> Any:
    """The value of a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def shown(value: Any) -> str:
    """A value as a user would type it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return '""' if value == "" else str(value)
