"""Converts the values of files and command lines to the types of their fields, or says what is wrong."""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from hpcbench.config.read_yaml import parse_yaml
from staging.bounds import shown
from staging.errors import InputError

T = TypeVar("T")
MOST_LETTERS = 4096
"""Length of a text: the longest path of Linux."""
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?\.?inf(inity)?|\.?nan", re.IGNORECASE)
WORDS: Mapping[Any, str] = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", Path: "a path",
}  # fmt: skip

MANY: Mapping[Any, str] = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


def fill(default: T, values: Mapping[str, Any], prefix: str = "") -> T:
    """The dataclass ``default`` with ``values``, a tree of its fields, typed as the fields say.

    Raises ``InputError`` that names the first key, with ``prefix``, whose value is not of its type.
    """
    hints = typing.get_type_hints(type(default))
    changed: dict[str, Any] = {}
    for name, value in values.items():
        group, key = getattr(default, name), f"{prefix}{name}"
        if dataclasses.is_dataclass(hints[name]):
            changed[name] = fill(group, value, f"{key}.")
        else:
            changed[name] = typed(value, hints[name], key)
    made: T = dataclasses.replace(default, **changed)  # type: ignore[type-var]
    return made


class UnfitError(Exception):
    """A value is not of a type."""


def typed(value: Any, hint: Any, key: str) -> Any:
    """``value`` as one of the type ``hint``. Raises ``InputError`` that names ``key``, the value and the type.

    A text for a field of another type is read as YAML, so that a command line can give numbers and lists.
    """
    try:
        return convert(value, hint, key)
    except UnfitError:
        hinted = ""
        if isinstance(value, (int, float)) and convertible(shown(value), hint, key):
            hinted = "; put it in quotes"
        elif value is None:
            hinted = "; give one, or leave the key out for its default"
        raise InputError(f"{key} ({shown(value)}) must be {words_of(hint)}{hinted}") from None


def convertible(value: Any, hint: Any, key: str) -> bool:
    """Whether ``value`` is one of the type ``hint``."""
    try:
        convert(value, hint, key)
    except UnfitError:
        return False
    return True


def convert(value: Any, hint: Any, key: str) -> Any:
    """``value`` as one of the type ``hint``. Raises ``UnfitError``; ``InputError`` for a text that nothing takes."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return convert_union(value, inner, key)
    if origin is Literal:
        return convert_literal(value, inner, key)
    if hint is Any or hint is type(None):
        return value if hint is Any else expected(None if value in ("null", "~") else value, hint)
    if hint in (str, Path):
        return hint(checked_text(str(expected(value, (str, hint))), key))
    if isinstance(value, str):
        value = number_or_yaml(value, hint, key)
    return (
        convert_number(value, hint) if hint in (bool, int, float) else convert_many(value, origin or hint, inner, key)
    )


def convert_number(value: Any, kind: type) -> float:
    """``value`` as a number, which true is not, or as true or false. Raises ``UnfitError``.

    Whole numbers too large for a float become infinite, for the bounds to refuse.
    """
    number: float = expected(value, (int, float) if kind is float else kind, but=() if kind is bool else bool)
    try:
        return float(number) if kind is float else number
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def convert_union(value: Any, kinds: tuple[Any, ...], key: str) -> Any:
    """``value`` as one of the first of ``kinds`` that takes it; null first, since a text takes the word, too."""
    for kind in sorted(kinds, key=lambda kind: kind is not type(None)):
        try:
            return convert(value, kind, key)
        except UnfitError:
            continue
    raise UnfitError


def convert_literal(value: Any, choices: tuple[Any, ...], key: str) -> Any:
    """The choice that equals ``value`` and is of its type, so that true is not 1."""
    candidates = [value]
    if isinstance(value, str) and not all(isinstance(choice, str) for choice in choices):
        candidates.append(number_or_yaml(value, hint=Any, key=key))
    for choice in choices:
        if any(type(choice) is type(candidate) and choice == candidate for candidate in candidates):
            return choice
    raise UnfitError


def convert_many(value: Any, kind: Any, inner: tuple[Any, ...], key: str) -> Any:
    """A list, tuple or mapping, each entry of its type."""
    if kind is list:
        return [typed(entry, (inner or (Any,))[0], f"{key}[{i}]") for i, entry in enumerate(expected(value, list))]
    if kind is tuple:
        entries = list(expected(value, (list, tuple)))
        kinds = inner[:1] * len(entries) if inner[1:] == (...,) else inner
        if len(kinds) != len(entries):
            raise UnfitError
        return tuple(typed(entry, kinds[i], f"{key}[{i}]") for i, entry in enumerate(entries))
    if isinstance(kind, type) and issubclass(kind, Mapping):
        first, last = inner or (Any, Any)
        pairs = expected(value, Mapping).items()
        return {typed(name, first, key): typed(entry, last, f"{key}.{shown(name)}") for name, entry in pairs}
    raise InputError(f"{key} is of type {words_of(kind)}, which no text can give; declare it as a number, text or list")


def expected(value: Any, kinds: Any, but: type | tuple[()] = ()) -> Any:
    """``value`` if it is of one of ``kinds`` and not ``but``. Raises ``UnfitError``."""
    if not isinstance(value, kinds) or isinstance(value, but):
        raise UnfitError
    return value


def number_or_yaml(text: str, hint: Any, key: str) -> Any:
    """The value of a text for a field of another type: YAML, and 1e-3, nan and inf, which YAML writes differently.

    Raises ``UnfitError`` for what is neither.
    """
    text = checked_text(text, key).strip()
    if hint is float and NUMBER.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    try:
        return parse_yaml(text, key)
    except InputError:
        raise UnfitError from None


def checked_text(text: str, key: str) -> str:
    """``text``, if files, logs and paths can hold it. Raises ``InputError``."""
    if len(text) > MOST_LETTERS:
        raise InputError(f"{key} has {len(text)} characters and must have at most {MOST_LETTERS}; shorten it")
    bad = next((letter for letter in text if ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0), None)
    if bad is not None:
        raise InputError(f"{key} ({shown(text)}) must not hold the control character {bad!r}; take it out")
    if any(0xD800 <= ord(letter) < 0xE000 for letter in text):
        raise InputError(f"{key} ({shown(text)}) must be UTF-8; rename it")
    return text


def words_of(hint: Any) -> str:
    """What a field takes, in words: ``a whole number or null``."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (types.UnionType, typing.Union):
        kinds = sorted(inner, key=lambda kind: kind is type(None))
        return " or ".join("null" if kind is type(None) else words_of(kind) for kind in kinds)
    if (origin or hint) in (list, tuple):
        counted = f"{len(inner)} " if origin is tuple and inner[1:] != (...,) else ""
        return f"a list of {counted}{MANY.get(inner[0], 'entries') if inner else 'entries'}"
    if isinstance(origin or hint, type) and issubclass(origin or hint, Mapping):
        return f"a mapping of names to {MANY.get(inner[1], 'values') if inner else 'values'}"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))
