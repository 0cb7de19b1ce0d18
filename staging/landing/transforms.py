"""Finds transforms, the work on a file between reading and writing, by name; several are chained with ``+``.

Each transform wraps a maker of sinks in another one, so that its output streams into the next:
``gunzip+tfrecord-index`` is a sink that decompresses into a sink that scans the records on their way into a file.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol

from staging.errors import InputError
from staging.landing.file_sink import FileSinkMaker
from staging.landing.sinks import SinkMaker
from staging.landing.transform.options import parse_options

BUILT_IN = {
    "gunzip": ("staging.landing.transform.gunzip", "Gunzip"),
    "hdf5-to-npy": ("staging.landing.transform.hdf5_npy", "HDF5ToNpy"),
    "npy-rows": ("staging.landing.transform.npy_rows", "NpyRows"),
    "tfrecord-index": ("staging.landing.transform.dali_index", "TFRecordIndex"),
    "tfrecord-to-npy": ("staging.landing.transform.tfrecord_npy", "TFRecordToNpy"),
    "untar": ("staging.landing.tar", "Untar"),
}
"""Module and class of each; a class is imported only when it is asked for, since some need h5py."""


class Transform(Protocol):
    """Turns each entry into files."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The endings of the entry names that it is for; empty if it does not say."""

    def names(self, name: str) -> list[str]:
        """The files that the entry ``name`` becomes; empty if only its content tells (an archive)."""

    def sinks(self, inner: SinkMaker) -> SinkMaker:
        """A maker of sinks that transform and write on to sinks of ``inner``; its ``estimate`` counts the outputs."""


def find_transform(text: str) -> Transform:
    """The transform ``text``: ``name``, ``name:option=value,...``, ``package.module:function``, or a chain ``a+b``.

    Raises ``InputError`` for a name, an option, a module or a function that does not exist.
    """
    steps = [_find(step) for step in text.split("+")]
    return steps[0] if len(steps) == 1 else Chain(tuple(steps))


def sink_maker(transform: str = "", files: FileSinkMaker | None = None) -> SinkMaker:
    """A maker of sinks that land files by ``files`` after ``transform`` (empty: as they are)."""
    files = files or FileSinkMaker()
    return find_transform(transform).sinks(files) if transform else files


def holds_files(text: str) -> bool:
    """Whether the transform called ``text`` holds whole files in memory at its first step."""
    from staging.landing.transform.whole import WholeTransform

    transform = find_transform(text)
    first = transform.steps[0] if isinstance(transform, Chain) else transform
    return isinstance(first, WholeTransform)


@dataclass(frozen=True)
class Chain:
    """Transforms one after another."""

    steps: tuple[Transform, ...]

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Those of all steps; empty if one does not say."""
        suffixes_by_step = [step.suffixes for step in self.steps]
        return (
            tuple(dict.fromkeys(suffix for one in suffixes_by_step for suffix in one)) if all(suffixes_by_step) else ()
        )

    def names(self, name: str) -> list[str]:
        """What the last step makes; empty as soon as one step can't say."""
        names = [name]
        for step in self.steps:
            made = [step.names(one) for one in names]
            if not all(made):
                return []
            names = [output for outputs in made for output in outputs]
        return names

    def sinks(self, inner: SinkMaker) -> SinkMaker:
        """The first step around the second, and so on down to ``inner``."""
        for step in reversed(self.steps):
            inner = step.sinks(inner)
        return inner


def _find(step: str) -> Transform:
    name, colon, rest = step.partition(":")
    transform: Transform
    if name in BUILT_IN:
        module, cls = BUILT_IN[name]
        transform = getattr(importlib.import_module(module), cls).from_options(parse_options(step, rest))
    elif colon:
        from staging.landing.transform.application import Application

        transform = Application.find(name, rest)
    else:
        known = ", ".join(BUILT_IN)
        raise InputError(f"transform '{step}' is not known; use one of {known}, or package.module:function")
    return transform
