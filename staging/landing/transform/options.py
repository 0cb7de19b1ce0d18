"""The options after a transform's name, ``name:option=value,option=value``, and those for files that it is not for."""

from __future__ import annotations

from collections.abc import Iterable

from staging.errors import InputError

Options = dict[str, str]

LEAVE = "leave it out (--exclude), or as it is (--plain NAME; auto for all that end otherwise)"
"""What to do about a file that a transform is not for."""


def parse_options(step: str, text: str) -> Options:
    """The options in ``text``, in order. Raises ``InputError`` for one without a value, and for one given twice."""
    options: Options = {}
    for part in text.split(",") if text else []:
        key, _, value = part.partition("=")
        if not key or not value:
            raise InputError(f"transform '{step}' has '{part}' where option=value is expected")
        if key in options:
            raise InputError(f"transform '{step}' says option '{key}' twice; leave one out")
        options[key] = value
    return options


def refuse_unknown(transform: str, options: Iterable[str], known: Iterable[str] = ()) -> None:
    """Raise ``InputError`` for an option that ``transform`` does not have."""
    for key in options:
        if key not in known:
            choice = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"transform '{transform}' has no option '{key}'; {choice}")


def positive(transform: str, options: Options, key: str, default: int) -> int:
    """Option ``key`` as a whole number of at least 1. Raises ``InputError`` otherwise."""
    text = options.get(key, str(default))
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"transform '{transform}' option {key} ({text}) must be a whole number of at least 1")
    return int(text)
