"""The page of settings, made from the dataclasses of a run: type, default, bounds and meaning of each."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal

from hpcbench.application import find_application, installed
from hpcbench.cli.settings import descriptions, shown
from hpcbench.config.bounds import BOUNDS
from hpcbench.config.resolve import config_class
from hpcbench.config.schema import RunConfig
from staging.bounds import Bounds, number

PATH = "reference/settings.md"
INTRODUCTION = """\
# Settings

Every setting of a run, made from the dataclasses of the configuration. Give one on the command line by its dotted name
(`--optim.lr 0.01`) or in a YAML file of `--config`. Defaults < preset < `--config` < command line.
`hpcbench train cosmoflow --list` prints them with the values of a preset. A value outside of the range is refused, with
exit code 2.
"""
NAMES = {bool: "true or false", int: "integer", float: "number", str: "text"}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A row of the page."""

    key: str
    kind: str
    default: str
    range: str
    meaning: str

    def row(self) -> str:
        """The setting as a row of a table in Markdown."""
        cells = (f"`{self.key}`", self.kind, f"`{self.default}`", self.range, self.meaning)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def settings_page() -> str:
    """The settings that every application has, by their group, then those that each application adds."""
    common = list(settings(RunConfig))
    parts = [INTRODUCTION, *groups(common, "##")]
    for name in installed():
        added = [each for each in settings(config_class(find_application(name))) if each not in common]
        parts += [f"## Added by {name}", f"What `{name}` adds, or gives a default of its own."]
        parts += groups(added, "###", name)
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def groups(group_settings: list[Setting], level: str, owner: str = "") -> Iterator[str]:
    """A heading and a table for each group of settings, such as ``optim``."""
    for group in dict.fromkeys(each.key.partition(".")[0] for each in group_settings):
        rows = [each.row() for each in group_settings if each.key.partition(".")[0] == group]
        yield f"{level} {f'{group} of {owner}' if owner else group}"
        yield "\n".join(["| setting | type | default | range | meaning |", "|---|---|---|---|---|", *rows])


def settings(kind: type[RunConfig]) -> Iterator[Setting]:
    """Every setting of a configuration but the name of its preset, which is none of its own."""
    meanings = descriptions(kind)
    for key, field, hint, default in fields_of(kind()):
        if key != "preset":
            bounds = field.metadata.get(BOUNDS)
            yield Setting(key, type_text(hint), shown(default), range_text(bounds), meanings.get(key, ""))


def fields_of(config: Any, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any, Any]]:
    """Dotted key, field, type and value of each setting in a dataclass and those in it."""
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        key, value = f"{prefix}{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields_of(value, f"{key}.")
        elif key != "model":  # an application has one, or none
            yield key, field, hints[field.name], value


def type_text(hint: Any) -> str:
    """A type in words: its choices, or what it holds."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (UnionType, typing.Union):
        kinds = [type_text(each) for each in arguments if each is not NoneType]
        return ", or ".join([*kinds, "unset"] if NoneType in arguments else kinds)
    if origin is list:
        return f"list of {type_text(arguments[0])}"
    if origin is tuple:
        return f"{len(arguments)} of {type_text(arguments[0])}"
    return NAMES.get(hint, str(hint))


def range_text(bounds: Bounds | None) -> str:
    """The range of a number, with what its upper bound comes from; empty where none is declared."""
    if bounds is None:
        return ""
    low, high = (f"{each:,.0f}" if each == int(each) else number(each) for each in (bounds.low, bounds.high))
    low, high = f"{'above ' * bounds.open_low}{low}", f"{'below ' * bounds.open_high}{high}"
    return f"{low} to {high}" + (f", since {bounds.why}" if bounds.why else "")
