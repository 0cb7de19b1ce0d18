"""The one reader of YAML files: plain mappings, lists and scalars within limits; anything else is a one-line error.

YAML can name a value and repeat it, make Python objects, nest without limit and hold dates. A configuration needs none
of that, so it is refused on the spot: aliases and anchors, tags, duplicate keys, keys that are not text. Dates are
text here. Nothing is built before its depth and the number of values are known to be within limits.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any, NoReturn

import yaml

from staging.bounds import shown
from staging.errors import InputError

Tree = dict[str, Any]
MOST_BYTES = 256 * 1024
"""Size of a file."""
MOST_LEVELS = 20
"""Mappings and lists within one another."""
MOST_VALUES = 10_000
"""Keys, values, lists and mappings of a file, together."""
MOST_LETTERS = 8192
"""Length of one text."""
MOST_DIGITS = 4000
"""Length of a number; Python itself reads no more than 4300 digits."""
PLAIN = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))
"""What unquoted text may mean. Dates and the signs << and = stay text."""


class PlainLoader(yaml.SafeLoader):
    """A safe loader that raises ``yaml.MarkedYAMLError`` for what no configuration needs."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own way to say it
        first: [(tag, pattern) for tag, pattern in resolvers if tag in PLAIN]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.levels = 0
        self.values = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node from the next event, if it is one that a configuration needs."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            refuse(event, f"'{sign}{shown(event.anchor)}' is an alias or anchor; write the values out")
        if getattr(event, "tag", None) is not None:
            refuse(event, f"tag '{shown(event.tag)}' makes no value that a setting takes; leave it out")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > MOST_LETTERS:
            refuse(event, f"a text of {len(event.value)} characters; at most {MOST_LETTERS} are read, shorten it")
        self.values += 1
        if self.values > MOST_VALUES:
            refuse(event, f"more than {MOST_VALUES} values; a configuration has fewer, shorten it")
        self.levels += 1
        if self.levels > MOST_LEVELS:
            refuse(event, f"more than {MOST_LEVELS} levels within one another; take some out")
        node = super().compose_node(parent, index)
        self.levels -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping whose keys are text, each once."""
        known: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                what = shown(key.value) if isinstance(key, yaml.ScalarNode) else f"a {key.id}"
                refuse(key, f"key ({what}) is not text; put it in quotes or take it out")
            if key.value in known:
                refuse(key, f"key '{shown(key.value)}' stands twice in one mapping; leave one of them")
            known.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_number(self, node: yaml.ScalarNode) -> float:
        """A valid number; YAML's pattern lets some invalid ones through, such as ``0x_``.

        ``1:30`` is 90 to YAML and a time to its writer, so it is refused. ``010`` is 10, not 8.
        """
        kind = node.tag.rpartition(":")[2]
        if ":" in node.value:
            refuse(node, f"{shown(node.value)} without quotes counts in sixties; put it in quotes")
        try:
            if len(node.value) > MOST_DIGITS:
                raise ValueError
            if kind == "int" and (digits := node.value.replace("_", "")).lstrip("+-").isdecimal():
                return int(digits)
            value: float = self.construct_yaml_int(node) if kind == "int" else self.construct_yaml_float(node)
            return value
        except (ValueError, OverflowError):
            refuse(node, f"'{shown(node.value)}' is no number of at most {MOST_DIGITS} digits; correct it")


for _kind in ("int", "float"):
    PlainLoader.add_constructor(f"tag:yaml.org,2002:{_kind}", PlainLoader.construct_number)


def refuse(at: Any, problem: str) -> NoReturn:
    """Raise the loader's error, with the place of an event or node."""
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)


def read_yaml(path: Path) -> Tree:
    """The mapping in a YAML file; empty if the file is.

    Raises a one-line ``InputError`` that names the file, and the line of what is wrong in it. The file must be a
    regular one, since a pipe could block and a device could be endless.
    """
    tree = parse_yaml(read_text(path), str(path))
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        kind = "list" if isinstance(tree, list) else "single value"
        raise InputError(f"{path}: holds a {kind}, but must be a mapping of keys to values; write KEY: VALUE")
    return tree


def parse_yaml(text: str, where: str) -> Any:
    """The value of a YAML text. Raises ``InputError`` that begins with ``where`` and names the line."""
    try:
        loader = PlainLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f", line {mark.line + 1}" if mark is not None else ""
        # PyYAML's own problems are of syntax; those of this module name what is wrong themselves.
        syntax = type(error) is not yaml.MarkedYAMLError
        problem = shown_problem(error.problem or error.context or "cannot be understood")
        raise InputError(f"{where}{line}: {f'not valid YAML ({problem}); correct it' if syntax else problem}") from None
    except yaml.reader.ReaderError as error:
        line = f", line {text.count(chr(10), 0, error.position) + 1}"
        problem = f"character {error.character!r}: {error.reason}"
        raise InputError(f"{where}{line}: not valid YAML ({shown_problem(problem)}); take it out") from None


def shown_problem(problem: str) -> str:
    """A problem in one line that is not too long to read."""
    words = " ".join(problem.split())
    return words if len(words) <= 200 else f"{words[:200]}..."


def read_text(path: Path) -> str:
    """The text of a regular file of at most ``MOST_BYTES``. Raises ``InputError``."""
    try:
        # Without this flag, opening a pipe waits for its other end.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise InputError(f"{path}: cannot read the configuration (not a regular file); give a YAML file")
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"{shown_path(path)}: cannot read the configuration ({reason}); give an existing YAML file"
        ) from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: larger than {MOST_BYTES} bytes, the most that a configuration has; shorten it")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: cannot read the configuration (not UTF-8); save it as UTF-8") from None


def shown_path(path: Path) -> str:
    """A path that can be printed."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))


def is_within(value: Any, levels: int) -> bool:
    """Whether lists and mappings are at most ``levels`` within one another; deeper values end in recursion."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels >= 0 and all(is_within(part, levels - 1) for part in parts)
