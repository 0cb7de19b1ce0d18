"""The list of settings that `hpcbench train APP --list` prints."""

from __future__ import annotations

import textwrap
from typing import Any

from hpcbench.config.resolve import known_keys, typed_parser
from hpcbench.config.schema import RunConfig


def settings_table(config: RunConfig) -> str:
    """Every dotted key with its value here and its description, at most 100 columns wide."""
    meanings = descriptions(type(config))
    lines = []
    for key, _ in known_keys(type(config)):
        if key == "preset":
            continue
        lines.append(f"--{key} {shown(lookup(config, key))}")
        lines += textwrap.wrap(meanings.get(key, ""), 92, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def descriptions(kind: type[RunConfig]) -> dict[str, str]:
    """Dotted key to its one-line meaning, from the dataclasses' docstrings."""
    actions = typed_parser(kind)._actions
    return {action.dest.removeprefix("run."): action.help or "" for action in actions if action.dest}


def lookup(config: RunConfig, key: str) -> Any:
    """The value behind a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def shown(value: Any) -> str:
    """A value as it would be typed."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return '""' if value == "" else str(value)
