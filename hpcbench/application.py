"""What an application is to the harness, and how applications are found.

An application is a Python package, named by an entry point of the group ``hpcbench.apps``. Its ``__init__.py``
holds one ``Application`` and imports no torch. The harness then finds each part by the name of its module:

========================  ==============================================================================
``config.Config``         subclass of ``RunConfig`` with the application's own dataclasses and defaults
``configs/*.yaml``        presets: ``smoke``, ``laptop``, ``node``, ``mlperf``, ...
``data``                  ``open_split(config, split) -> Dataset``; ``check_file(path, config)``; ``inspect_file``
``simulate``              ``write_sample(config, root, split, index)`` and ``finish(config, root)``
``model``                 ``build_model(config) -> nn.Module``
``task``                  ``build_task(config) -> Task``: batch preparation, loss, scores, metrics, logged keys
``baselines``             ``baselines(config) -> dict[str, dict[str, float]]`` (optional)
``plots``                 ``figures(run_folder) -> list[Figure]`` for the report (optional)
``references/*.json``     reference convergence points per preset (optional)
========================  ==============================================================================
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from staging.errors import InputError

if TYPE_CHECKING:
    from hpcbench.config.schema import RunConfig

GROUP = "hpcbench.apps"


@dataclass(frozen=True)
class Application:
    """A scientific training problem: its name, one line about it, its MLPerf key and its package."""

    name: str
    title: str
    benchmark: str
    package: str

    def module(self, part: str) -> ModuleType:
        """Import the part ``part`` (``model``, ``task``, ...) of the application."""
        return import_module(f"{self.package}.{part}")

    def has(self, part: str) -> bool:
        """Whether the application has the optional part ``part``."""
        return find_spec(f"{self.package}.{part}") is not None

    def folder(self) -> Path:
        """The application's own folder, with its presets and reference runs."""
        return Path(str(files(self.package)))

    def config_class(self) -> type[RunConfig]:
        """The dataclass of the application's runs."""
        config: type[RunConfig] = self.module("config").Config
        return config

    def presets(self) -> dict[str, Path]:
        """Preset names with their files, smallest first where the usual names are used."""
        usual = ["smoke", "laptop", "node", "mlperf"]
        found = {path.stem: path for path in (self.folder() / "configs").glob("*.yaml")}
        order = sorted(found, key=lambda name: (usual.index(name) if name in usual else len(usual), name))
        return {name: found[name] for name in order}


@cache
def applications() -> dict[str, Application]:
    """All installed applications by name."""
    found = {point.name: point.load() for point in entry_points(group=GROUP)}
    return dict(sorted(found.items()))


def find_application(name: str) -> Application:
    """The application called ``name``, or an ``InputError`` that suggests the nearest one."""
    known = applications()
    if name not in known:
        raise InputError(f"unknown application '{name}'; {suggest(name, list(known))}")
    return known[name]


def suggest(wrong: str, known: list[str]) -> str:
    """A hint for an unknown name: the nearest known one, or the list of them."""
    near = difflib.get_close_matches(wrong, known, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'?" if near else "known: " + ", ".join(known)
