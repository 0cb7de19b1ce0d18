"""What an application is to the harness, and how applications are found.

An application is a Python package, named by an entry point of the group ``hpcbench.apps``. Its ``__init__.py``
holds one ``Application`` and imports no torch. The harness then finds each part by the name of its module:

========================  ==============================================================================
``configs/*.yaml``        presets: ``smoke``, ``laptop``, ``node``, ``mlperf``, ...
``data``                  ``open_split(config, split) -> Dataset`` of (inputs, targets) for ``train`` and ``validation``
``model``                 ``build_model(config) -> nn.Module``
``task``                  ``build_task(config) -> Task``: batch preparation, loss, scores, metrics, logged keys
========================  ==============================================================================

The following parts are optional; a command that needs a missing part says so in one line.

========================  ==============================================================================
``config.Config``         subclass of ``RunConfig`` with the application's own dataclasses and defaults
``data.files_of_split``   ``(config, split)``: files to stage and verify; default: all below ``data.root/split``
``data.shared_files``     ``(config)``: files that all samples share, such as statistics; default: none
``data.check_file``       ``(path, config)``: raises ``DataError`` for a bad file, for `hpcbench data verify`
``data.inspect_file``     ``(path) -> dict[str, str]``: what a file holds, for `hpcbench data inspect`
``data.recognize_file``   ``(path) -> dict | None``: settings of ``data`` that a sample shows; ``None`` or an error for
                          a file that is not the application's; for `hpcbench data inspect DIR` and `verify DIR`
``data.staged_form``      ``(data, transform)``: sets the configuration to the form that a staging transform makes
``data.largest_file``     ``(data) -> int``: the most bytes of a file that a staging transform makes; default: no bound
``data.cut_file``         ``(path, folder, config)``: cuts a file of many samples, for `hpcbench data split`
``open_split(...).part``  ``(extents, stored) -> Dataset`` that reads a part of each sample's inputs (see
                          ``hpcbench.data.spatial_part``) if ``Task.reads_parts``; default: all is read
``open_split(...)         ``(samples) -> (inputs, targets)``: makes a batch of a list of the dataset's items, which then
.collate``                need not be pairs; default: inputs and targets are stacked
``data.npy_inputs``       ``(data) -> str``: pattern of the npy files whose rows `staging.slabs` may leave out
``data.dali_samples``     ``(config, split) -> DaliSamples`` (see ``hpcbench.data.dali_samples``): files and layouts,
                          for ``data.loader dali``; raises ``InputError`` for files that DALI cannot read
``simulate``              ``write_sample(config, root, split, index)`` and ``expected_files`` with the same arguments;
                          ``samples_per_call(config)``, default: one; ``finish(config, root)`` after the last sample
``parallel``              ``parallelize(model, config, mesh)``: splits the model's layers over the ranks of a sample,
                          for ``parallel.spatial``; ``checkpointed_blocks(model)``: modules for
                          ``parallel.activation_checkpointing``
``shapes``                ``batch_shapes(config, samples)``: inputs and targets of a batch, without data, in the
                          layout that they are read in; for `hpcbench plan`, which otherwise reads a sample, and for
                          compilation before the clock
``sizes``                 ``sample_size(data) -> SampleSize`` (see ``hpcbench.data.sample_size``): bytes of a sample's
                          files, for `hpcbench submit` and `study` without the dataset at hand; imports no torch
``baselines``             ``baselines(config) -> dict[str, dict[str, float]]``, metrics by the predictor's name
``plots``                 ``figures(run_folder) -> list[Figure]`` and text for the report
``references/*.json``     reference convergence points per preset
========================  ==============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from hpcbench import plugins
from hpcbench.suggest import suggest
from staging.bounds import shown
from staging.errors import InputError


@dataclass(frozen=True)
class Application:
    """A scientific training problem: its name, a one-line title, its MLPerf key and its package."""

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

    def presets(self) -> dict[str, Path]:
        """Preset names with their files, smallest first if they have the usual names or end in numbers."""
        usual = ["smoke", "laptop", "study", "workstation", "node", "mlperf"]
        paths = {path.stem: path for path in (self.folder() / "configs").glob("*.yaml")}

        def place(name: str) -> tuple[int, list[tuple[int, str]]]:
            words = [(int(word), "") if word.isdigit() else (-1, word) for word in name.split("-")]
            return usual.index(name) if name in usual else len(usual), words

        return {name: paths[name] for name in sorted(paths, key=place)}


def applications() -> dict[str, Application]:
    """All installed applications by name. Raises ``InputError`` if one cannot be imported."""
    return {name: find_application(name) for name in installed()}


def installed() -> dict[str, EntryPoint]:
    """Names of the installed applications, sorted, and their entry points; nothing is imported."""
    return {point.name: point for point in plugins.registered(plugins.APPLICATIONS)}


@cache
def find_application(name: str) -> Application:
    """The application called ``name``.

    Raises ``InputError`` if there is none (names the nearest), if it cannot be imported, or if two packages have it.
    """
    point = plugins.find(plugins.APPLICATIONS, name)
    if point is None:
        raise InputError(f"unknown application '{shown(name)}'; {suggest(name, list(installed()))}")
    application: Application = plugins.load(point, Application)
    return application
