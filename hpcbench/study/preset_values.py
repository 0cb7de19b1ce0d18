"""What a study's preset said when the study began: its pages keep to that, and no run is made with anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hpcbench.application import Application, find_application
from hpcbench.config.read_yaml import Tree
from hpcbench.config.resolve import config_class, known_keys, merge, merge_preset, nest, resolve
from hpcbench.config.schema import RunConfig
from staging.errors import InputError


class OfPreset(Protocol):
    """A study of any kind."""

    @property
    def application(self) -> str: ...

    @property
    def preset(self) -> str: ...

    @property
    def preset_values(self) -> Mapping[str, Any]:
        """``preset_values`` of the day when the study began; empty for a study of an earlier version."""


def preset_values(application: Application, preset: str) -> dict[str, Any]:
    """Every setting that the preset and those that it extends have, by its dotted name."""
    tree: Tree = {}
    merge_preset(tree, application, preset, config_class(application))
    return {
        f"{group}.{key}" if isinstance(values, dict) else group: value
        for group, values in tree.items()
        for key, value in (values.items() if isinstance(values, dict) else [("", values)])
    }


def study_config(study: OfPreset, settings: Mapping[str, Any], files: Sequence[str] = ()) -> RunConfig:
    """The configuration of a study's runs with ``settings``: that of ``resolve``, with the preset as it was."""
    application = find_application(study.application)
    paths = [Path(name) for name in files]
    return resolve(application, study.preset, paths, settings, as_tree(application, study.preset_values))


def as_tree(application: Application, values: Mapping[str, Any]) -> Tree:
    """The values as a preset's file has them; settings that this version no longer knows are left out."""
    kind, tree = config_class(application), Tree()
    known = {key for key, _ in known_keys(kind)}
    for key, value in values.items():
        if key in known:
            merge(tree, nest(key, value), kind, "the study's preset")
    return tree


def refuse_changed_preset(study: OfPreset, folder: Path) -> None:
    """Raise ``InputError`` if the preset says something else than when the study began: its runs would not compare."""
    today = preset_values(find_application(study.application), study.preset)
    for key, before, now in compare_presets(study.preset_values, today):
        raise InputError(
            f"{folder} began when preset '{study.preset}' had {key} {before}, and now it has {now}; continue with the "
            "version that began it, or give another --study-dir"
        )


def compare_presets(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """The settings in which two records of a preset differ; none if one of them is of an earlier version."""
    if not old or not new:
        return []
    keys = sorted({**old, **new})
    pairs = [(key, old.get(key, "unset"), new.get(key, "unset")) for key in keys]
    return [setting for setting in pairs if setting[1] != setting[2]]
