"""The line numbers of the keys of a YAML file, for errors that name them."""

from __future__ import annotations

from pathlib import Path

import yaml

from hpcbench.config.read_yaml import PlainLoader, read_text


def lines_of(path: Path) -> dict[str, int]:
    """Line, from 1, of each key and list entry: ``scenarios[0].metric.what`` to 41.

    The file is one that ``read_yaml`` has read, so it is small and plain.
    """
    loader = PlainLoader(read_text(path))
    try:
        root = loader.get_single_node()
    finally:
        loader.dispose()
    lines: dict[str, int] = {}
    if root is not None:
        walk(root, "", lines)
    return lines


def walk(node: yaml.Node, path: str, lines: dict[str, int]) -> None:
    """Put the lines of everything below ``node`` into ``lines``."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            lines[name] = key.start_mark.line + 1
            walk(value, name, lines)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            lines[f"{path}[{number}]"] = value.start_mark.line + 1
            walk(value, f"{path}[{number}]", lines)
