"""Resolves defaults, preset, files and overrides to a checked configuration; a later source wins, wherever given."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcbench.application import Application
from hpcbench.config.optimizers import own_settings
from hpcbench.config.read_yaml import MOST_LEVELS, Tree, read_yaml
from hpcbench.config.schema import OptimConfig, RunConfig
from hpcbench.config.typed_values import fill
from hpcbench.config.validate import validate_run
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError


def resolve(
    application: Application,
    preset: str | None = None,
    files: list[Path] | None = None,
    overrides: Mapping[str, Any] | None = None,
    recorded: Tree | None = None,
) -> RunConfig:
    """The configuration of a run: defaults < preset < files < overrides (dotted keys).

    ``recorded`` holds what the preset said earlier, and replaces what it says now. Without ``preset`` the files hold
    the whole configuration, as that of a run folder does, and a preset's name in them is only a name.

    Raises a one-line ``InputError`` for an unknown preset or key (with the nearest right one), a file that names
    another preset, a value of the wrong type, and a combination that cannot run.
    """
    kind = config_class(application)
    tree: Tree = {}
    if preset is not None:
        preset_named(files or [], preset)
        if recorded:
            merge(tree, recorded, kind, f"preset '{preset}' as recorded")
        else:
            merge_preset(tree, application, preset, kind)
        tree["preset"] = preset
    for path in files or []:
        values = read_yaml(path)
        if "extends" in values:
            preset = shown(values["extends"])
            raise InputError(f"{path}: 'extends' is for presets; leave it out and give --preset {preset}")
        merge(tree, values, kind, str(path))
    # The optimizer's name first, because it unsets the options of another one.
    for key in sorted(overrides or {}, key=lambda key: key != "optim.name"):
        merge(tree, nest(key, (overrides or {})[key]), kind, "the command line")
    config = fill(kind(), tree)
    validate_run(config)
    config.validate()
    return config


def preset_named(files: Sequence[Path], given: str | None, default: str = "smoke") -> str:
    """The preset of a command: the one that is ``given``, else the one that a settings file names, else ``default``.

    Raises ``InputError`` if two of them are named: a run would bear the name of one and have the values of another.
    """
    named = given
    for path in files:
        value = read_yaml(path).get("preset")
        if value is None:
            continue
        if not isinstance(value, str):
            raise InputError(f"{path}: preset must be a name, not {shown(value)}")
        if named not in (None, value):
            raise InputError(
                f"{path} names preset '{shown(value)}', and '{shown(named)}' is asked for besides; leave out one of "
                "them"
            )
        named = value
    return default if named is None else named


def config_class(application: Application) -> type[RunConfig]:
    """The dataclass of an application's runs; ``RunConfig`` if it adds nothing."""
    kind: type[RunConfig] = application.module("config").Config if application.has("config") else RunConfig
    return kind


def merge_preset(tree: Tree, application: Application, preset: str, kind: type) -> None:
    """Put the values of a preset into ``tree``, on top of those of the presets that it ``extends``."""
    for name, values in reversed(preset_chain(application, preset)):
        merge(tree, values, kind, f"preset '{name}'")


def preset_chain(application: Application, preset: str) -> list[tuple[str, Tree]]:
    """The preset and what it extends, with the values that each sets itself.

    Raises ``InputError`` for a name that is no preset, and for presets that extend one another in a circle.
    """
    presets, chain = application.presets(), [preset]
    preset_values: list[tuple[str, Tree]] = []
    while True:
        name = chain[-1]
        if not isinstance(name, str) or name not in presets:
            by = f", which preset '{chain[-2]}' extends" if preset_values else ""
            near = suggest(str(name), list(presets))
            raise InputError(f"{application.name} has no preset '{shown(name)}'{by}; {near}")
        values = read_yaml(presets[name])
        base = values.pop("extends", None)
        preset_values.append((name, values))
        if base is None:
            return preset_values
        chain.append(base)
        if base in chain[:-1]:
            raise InputError(f"presets of {application.name} extend one another: {' -> '.join(chain)}; end the circle")


def nest(key: str, value: Any) -> Tree:
    """``nest("a.b", 1)`` is ``{"a": {"b": 1}}``. Raises ``InputError`` for a key of more parts than any has."""
    if key.count(".") >= MOST_LEVELS:
        raise InputError(f"the command line: '{shown(key)}' has {key.count('.') + 1} parts; a key has two, GROUP.KEY")
    tree: Any = value
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return typing.cast("Tree", tree)


def merge(tree: Tree, new: Tree, kind: type, source: str, prefix: str = "") -> None:
    """Put the values of ``new`` into ``tree``; keys must be fields of the dataclass ``kind``."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
    if kind is OptimConfig and new.get("name", tree.get("name")) != tree.get("name"):
        forget_options(tree)
    for key, value in new.items():
        dotted = f"{prefix}{key}"
        if key not in fields:
            raise InputError(f"{source}: {unknown_key(dotted, value, kind, prefix)}")
        group = fields[key]
        if dataclasses.is_dataclass(group):
            if not isinstance(value, dict):
                raise InputError(f"{source}: '{dotted}' is a group of keys, not a value; set for example {dotted}.KEY")
            merge(tree.setdefault(key, {}), value, typing.cast("type", group), source, f"{dotted}.")
        else:
            tree[key] = value


def forget_options(optim: Tree) -> None:
    """Take out the options of an optimizer that a later source replaces by another one; the rate and decay stay."""
    for key in own_settings(OptimConfig()):
        optim.pop(key, None)


def unknown_key(dotted: str, value: Any, kind: type, prefix: str) -> str:
    """The message on an unknown key: the nearest key of its group, or of all if the group itself is wrong."""
    known = [key for key, _ in known_keys(kind)]
    if dotted.removeprefix(prefix) in known:  # as on the command line
        group, _, name = dotted.removeprefix(prefix).rpartition(".")
        return f"'{shown(dotted)}' is the name for a command; write it in a file as {group}: {{{name}: ...}}"
    while isinstance(value, dict) and len(value) == 1:
        (name, value), *_ = value.items()
        dotted = f"{dotted}.{name}"
    groups = sorted({key.rpartition(".")[0] for key in known} - {""}) if isinstance(value, dict) else []
    near = suggest(dotted.removeprefix(prefix), known + groups, "`hpcbench train APP --list` shows all", prefix)
    return f"unknown key '{shown(dotted)}'; {near}"


def known_keys(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every dotted key of a configuration with its default value."""
    defaults = kind()
    for field in dataclasses.fields(kind):
        value = getattr(defaults, field.name)
        if dataclasses.is_dataclass(value):
            yield from known_keys(type(value), f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value


def as_tree(config: RunConfig) -> Tree:
    """The configuration as plain lists and mappings, as it is written to ``config.yaml``."""
    tree = dataclasses.asdict(config)
    tree["optim"] = {key: list(value) if isinstance(value, tuple) else value for key, value in tree["optim"].items()}
    return tree
